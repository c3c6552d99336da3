"""The parallel kernel: exact against enumeration, independent of the number of devices, and on bad input."""

from __future__ import annotations

import textwrap
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs
from scipy.special import gammaln
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.distributions.seating import Prior
from bnp_hier.kernels import chunked_rows, parallel_moves, parallel_split_merge
from bnp_hier.kernels.chunked_rows import flat, in_chunks, row_chunks
from bnp_hier.kernels.parallel_moves import Table, _log_pairing, sum_clusters, units_of_clusters, units_of_rows
from bnp_hier.kernels.reports import wait_for_reports
from bnp_hier.models import dpm, pitman_yor_mixture
from bnp_hier.partitions.row_features import feature_map
from bnp_hier.utils.arrays import own_arrays
from bnp_hier.utils.labels import canonical_labels
from tests.kernels.small_problems import PROBLEMS, enumerate_small
from tests.oracles.monte_carlo import assert_exact, excess_variation
from tests.parameters import few
from tests.processes import start, together


def _run(name: str, concentration: float, discount: float, draws: int, **options) -> tuple[np.ndarray, dict, MCMC]:
    component, X = PROBLEMS[name]
    model = partial(pitman_yor_mixture, component=component, concentration=concentration, discount=discount)
    kernel = bnp.ParallelSplitMerge(model, **({"sweep": False, "init": "one"} | options))
    mcmc = MCMC(kernel, num_warmup=200, num_samples=draws, progress_bar=False)
    mcmc.run(jax.random.key(0), X, extra_fields=("log_joint", "n_clusters", "split_merge_accepted", "summary"))
    return np.asarray(mcmc.get_samples()["z"]), mcmc.get_extra_fields(), mcmc


@pytest.mark.parametrize(
    ("name", "discount"),
    [
        pytest.param("bernoulli", 0.3, marks=pytest.mark.slow),
        pytest.param("normal", 0.0, marks=pytest.mark.exhaustive),
        pytest.param("poisson", 0.0, marks=pytest.mark.exhaustive),
        pytest.param("diagonal, missing", 0.3, marks=pytest.mark.exhaustive),
        pytest.param("user family", 0.0, marks=pytest.mark.exhaustive),
    ],
)
def test_exact(name: str, discount: float) -> None:
    """Parallel moves alone, no sweep of single moves; a user's family goes by its likelihood instead of matrix products."""
    exact = enumerate_small(name, 1.2, discount)
    labels, fields, _ = _run(name, 1.2, discount, 10_000)
    assert_exact(labels, exact, exact.probabilities, fields["log_joint"], fields["n_clusters"])
    index = [exact.index[tuple(z)] for z in labels[:300]]
    np.testing.assert_allclose(fields["log_joint"][:300], exact.log_joint[index], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(fields["n_clusters"], labels.max(1) + 1)
    assert np.asarray(fields["split_merge_accepted"]).sum() > 0
    # the summaries are those of the draws, largest cluster first
    for z, counts in zip(labels[:50], fields["summary"]["counts"][:50], strict=True):
        np.testing.assert_array_equal(counts, np.sort(np.bincount(z, minlength=6))[::-1])


@pytest.mark.slow
@pytest.mark.parametrize("which", few(["selection", "leaders", "concentration"], plain=0))
def test_broken_variants_are_caught(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the selection ratio, without leaders that stay, or without α in the ratio, the same test fails."""
    if which == "selection":
        monkeypatch.setattr(parallel_moves, "_log_pairing", lambda clusters, pairs: 0.0 * clusters)
    elif which == "leaders":
        # nobody stays and everybody may go anywhere: clusters can empty, which nothing undoes
        monkeypatch.setattr(
            parallel_moves,
            "_first",
            lambda priority, labels, slots: (jnp.zeros(slots, priority.dtype), jnp.full(slots, -1)),
        )
        monkeypatch.setattr(parallel_split_merge, "units_of_clusters", units_of_rows)
    else:
        original = parallel_moves.split_and_merge
        monkeypatch.setattr(
            parallel_split_merge,
            "split_and_merge",
            lambda key, table, clusters, prior, units: original(key, table, clusters, Prior(1.0, prior.discount), units),
        )
    exact = enumerate_small("normal", 3.0)
    labels, fields, _ = _run("normal", 3.0, 0.0, 20_000)
    assert excess_variation(labels, exact, exact.probabilities, fields["log_joint"], fields["n_clusters"]) > 1.3


@pytest.mark.slow
def test_capacity_restricts_the_target_and_is_never_silent() -> None:
    exact = enumerate_small("bernoulli", 1.5)
    allowed = np.array(exact.labels).max(1) < 2
    probabilities = np.where(allowed, exact.probabilities, 0.0) / exact.probabilities[allowed].sum()
    with pytest.warns(RuntimeWarning, match="ParallelSplitMerge reached its capacity of 2 clusters"):
        labels, fields, mcmc = _run("bernoulli", 1.5, 0.0, 20_000, max_clusters=2)
        wait_for_reports(mcmc.last_state)
    assert int(mcmc.last_state.capacity_hits) > 0
    assert_exact(labels, exact, probabilities, fields["log_joint"])


def _table(component, X: np.ndarray) -> Table:
    rows, component = jax.tree.map(jnp.asarray, own_arrays((X, component)))
    return Table(component, component, rows, row_chunks(rows), feature_map(component))


@pytest.fixture(params=[chunked_rows.PARTS, chunked_rows.PARTS_ON_ACCELERATORS])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Numbers of parts per chunk on CPUs and on accelerators."""
    monkeypatch.setattr(chunked_rows, "_parts", lambda: request.param)
    return request.param


@pytest.mark.parametrize("n", [1, 6, 16, 4096, 5000, 10_007, 70_001])
def test_chunks_hold_every_row_once(n: int, parts: int) -> None:
    rows = jnp.arange(n)
    assert in_chunks(rows).shape[1] % parts == 0
    chunks = in_chunks(rows)
    there = row_chunks(rows[:, None].astype(float)).there
    np.testing.assert_array_equal(flat(chunks, n), rows)
    np.testing.assert_array_equal(np.sort(np.asarray(chunks)[np.asarray(there)]), rows)


@pytest.mark.parametrize("name", few(["normal", "diagonal, missing", "bernoulli", "poisson"], 2, 2))
@pytest.mark.usefixtures("parts")
def test_sums_by_products_are_the_clusters_statistics(name: str, x64: None) -> None:
    component, X = PROBLEMS[name]
    labels = jnp.array([0, 2, 2, 0, 4, 2])
    clusters = sum_clusters(_table(component, X), labels, 6)
    expected = jax.tree.map(lambda leaf: jax.ops.segment_sum(leaf, labels, 6), component.suff_stats(X.copy()))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), clusters.stats, expected)
    np.testing.assert_array_equal(clusters.counts, [2, 0, 3, 0, 1, 0])


@pytest.mark.parametrize("k", [1, 2, 3, 6, 7])
def test_pairings_have_total_probability_one(k: int) -> None:
    def pairings(clusters: tuple[int, ...]) -> list[int]:
        """Numbers of pairs of all ways to leave clusters alone or in pairs."""
        if not clusters:
            return [0]
        first, *rest = clusters
        alone = pairings(tuple(rest))
        paired = [1 + p for other in rest for p in pairings(tuple(c for c in rest if c != other))]
        return alone + paired

    total = sum(np.exp(float(_log_pairing(jnp.asarray(k), jnp.asarray(p)))) for p in pairings(tuple(range(k))))
    np.testing.assert_allclose(total, 1.0, rtol=1e-5)


@pytest.mark.parametrize("draw", few([units_of_rows, units_of_clusters]))
def test_units_are_disjoint_and_their_anchors_lie_in_them(draw) -> None:
    rng = np.random.default_rng(0)
    labels = jnp.asarray(rng.choice(20, p=rng.dirichlet(np.full(20, 0.5)), size=500))
    counts = jnp.bincount(labels, length=32)
    clusters = parallel_moves.Clusters(labels, (), counts.astype(float))
    kinds = np.zeros(2, int)
    for seed in range(20):
        units = draw(jax.random.key(seed), clusters)
        active = np.flatnonzero(np.asarray(units.anchors)[:, 0] < 500)
        for m in active:
            anchors, slots = np.asarray(units.anchors[m]), np.asarray(units.slots[m])
            assert anchors[0] != anchors[1]
            np.testing.assert_array_equal(labels[anchors], slots)
            np.testing.assert_array_equal(np.flatnonzero(np.asarray(units.of_slot) == m), np.unique(slots))
            kinds[int(slots[0] == slots[1])] += 1
    assert (kinds > 5).all()


def _separated(n: int = 3000, d: int = 3, k: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    y = rng.integers(0, k, n)
    return rng.normal(size=(k, d))[y] * 8.0 + rng.normal(size=(n, d)), y


@pytest.mark.slow
def test_finds_clusters_from_one_and_from_fits() -> None:
    X, y = _separated()
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False))
    for init in ("one", "fits"):
        kernel = bnp.ParallelSplitMerge(model, 32, init=init, sweep=False)
        mcmc = MCMC(kernel, num_warmup=300, num_samples=20, progress_bar=False)
        mcmc.run(jax.random.key(0), X.astype(np.float32))
        assert adjusted_rand_score(y, mcmc.get_samples()["z"][-1]) > 0.99, init


@pytest.mark.slow
def test_merged_pairs_of_far_clusters_are_split() -> None:
    """A pair's own spread is widest along just the direction that tells its halves apart: anchors must not be judged by it."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 1500)
    X = (rng.normal(scale=3.0, size=(6, 10))[y] + rng.normal(size=(1500, 10))).astype(np.float32)
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)
    kernel = bnp.ParallelSplitMerge(model, 16, init=np.unique(y // 2, return_inverse=True)[1], sweep=False)
    mcmc = MCMC(kernel, num_warmup=80, num_samples=1, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    assert adjusted_rand_score(y, mcmc.get_samples()["z"][-1]) > 0.99


@pytest.mark.optimised
@pytest.mark.parametrize(("kind", "capacity"), few([("MAPDP", 3), ("BayesianKMeans", 32)], plain=0))
def test_start_fitted_to_some_of_the_rows(kind: str, capacity: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few clusters may be kept; every row has one of them, the same whenever the key is."""
    monkeypatch.setattr(parallel_split_merge, "START_ROWS", 150)
    X, y = _separated()
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)
    keys = iter(map(jax.random.key, range(100)))
    key = next(k for k in keys if int(jax.random.randint(k, (2,), 0, 1 << 30)[1]) % 2 == (kind == "MAPDP"))
    kernels = [bnp.ParallelSplitMerge(model, capacity) for _ in range(2)]
    first, again = (np.asarray(kernel.init(key, 0, None, (X,), {}).z["z"]) for kernel in kernels)
    np.testing.assert_array_equal(first, again)
    assert first.shape == y.shape and first.min() == 0 and first.max() < capacity
    assert capacity == 3 or adjusted_rand_score(y, first) > 0.9


@pytest.mark.slow
def test_summaries_take_the_place_of_labels() -> None:
    X = (np.random.default_rng(0).random((64, 3)) < 0.5).astype(float)
    model = partial(dpm, component=bnp.BetaBernoulli.from_data(X, learn=False))
    kernel = bnp.ParallelSplitMerge(model, 8, keep_labels=False, init=np.arange(64) % 2, sweep=False)
    mcmc = MCMC(kernel, num_warmup=2, num_samples=5, progress_bar=False)
    mcmc.run(jax.random.key(0), X, extra_fields=("log_joint",))
    samples = mcmc.get_samples()
    assert set(samples) == {"counts", "statistics"}
    assert samples["counts"].shape == (5, 8) and (samples["counts"].sum(1) == 64).all()
    with pytest.raises(ValueError, match="but not the labels 'z', .*: run it with keep_labels=True"):
        bnp.to_arviz(mcmc, X)
    labels = np.asarray(mcmc.last_state.z["z"])
    np.testing.assert_array_equal(labels, canonical_labels(labels))
    # the log joint follows from the summaries
    sizes = np.asarray(samples["counts"][-1])
    sizes = sizes[sizes > 0]
    prior = gammaln(sizes).sum() - gammaln(65.0)  # α = 1
    last = jax.tree.map(lambda leaf: leaf[-1], samples["statistics"])
    joint = prior + float(kernel.model.keywords["component"].log_marginal(last).sum())
    np.testing.assert_allclose(mcmc.get_extra_fields()["log_joint"][-1], joint, rtol=1e-5)


DEVICES = textwrap.dedent("""
    import sys
    import jax, numpy as np
    import numpyro; numpyro.enable_x64()
    import bnp_hier as bnp
    from functools import partial
    from bnp_hier.models import dpm
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(6, 2))[rng.integers(0, 6, 4800)] * 5 + rng.normal(size=(4800, 2))).astype(np.float32)
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False))
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("rows",)), PartitionSpec("rows"))
    if jax.process_count() > 1:
        X = jax.make_array_from_process_local_data(sharding, np.split(X, jax.process_count())[jax.process_index()])
    else:
        X = jax.device_put(X, sharding)
    kernel = bnp.ParallelSplitMerge(model, 16, init="one", sweep=False)
    state = kernel.init(rng_key=jax.random.key(0), num_warmup=0, init_params=None, model_args=(X,), model_kwargs={})
    step = jax.jit(lambda state, X: kernel.sample(state, (X,), {}))
    for _ in range(30):
        state = jax.block_until_ready(step(state, X))  # devices are threads, which steps in flight would exhaust
    labels = state.z["z"]
    if jax.process_count() > 1:
        from jax.experimental.multihost_utils import process_allgather
        labels = process_allgather(labels, tiled=True)
    print(len(jax.devices()), int(state.n_clusters), float(state.log_joint), hash(np.asarray(labels).tobytes()) % 10**9)
    if len(sys.argv) > 1:
        text = step.lower(state, X).compile().as_text()
        gathered = [line for line in text.splitlines() if "all-gather" in line and "f32[4800,2]" in line]
        assert not gathered, gathered[:3]
""")

COLLECTIVES = textwrap.dedent("""
    import re, sys
    import jax, numpy as np
    import numpyro; numpyro.enable_x64()
    import bnp_hier as bnp
    from functools import partial
    from bnp_hier.models import dpm
    from jax.sharding import NamedSharding, PartitionSpec
    component = bnp.NormalInverseWishart(np.zeros(2), 0.1, 5.0, np.eye(2))
    kernel = bnp.ParallelSplitMerge(partial(dpm, component=component), 16, init="one", sweep=False)
    for rows in (8192, 131_072):
        X = np.random.default_rng(0).normal(size=(rows, 2)).astype(np.float32)
        X = jax.device_put(X, NamedSharding(jax.make_mesh((jax.device_count(),), ("rows",)), PartitionSpec("rows")))
        state = kernel.init(jax.random.key(0), 0, None, (X,), {})
        step = jax.jit(lambda state, X: kernel.sample(state, (X,), {})).lower(state, X).compile()
        found = re.findall(r"= .*? (all-reduce|all-gather|collective-permute|all-to-all)[-(.]", step.as_text())
        # by computation: a body of a loop over chunks must not have any
        bodies = re.findall(r"body=%?([\\w.-]+)", step.as_text())
        chunks = re.split(r"\\n(?=[%\\w].*\\{\\n)", step.as_text())
        inside = sum(len(re.findall(r" (?:all-reduce|all-gather|collective-permute)[-(.]", part))
                     for part in chunks if any(part.lstrip().lstrip("%").startswith(body) for body in bodies))
        print(rows, len(found), inside)
""")

PROCESSES = textwrap.dedent("""
    import sys, warnings
    import jax, numpy as np
    import numpyro; numpyro.enable_x64()
    import bnp_hier as bnp
    from functools import partial
    from bnp_hier.models import dpm
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from numpyro.infer import MCMC, Gibbs
    rank, procs = jax.process_index(), jax.process_count()
    rng = np.random.default_rng(0)
    whole = (rng.normal(size=(6, 2))[rng.integers(0, 6, 4800)] * 5 + rng.normal(size=(4800, 2))).astype(np.float32)

    def spread(rows, mesh):
        own = np.split(rows, procs)[rank]
        return jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("rows")), own)

    explicit, auto = jax.make_mesh((jax.device_count(),), ("rows",)), Mesh(np.array(jax.devices()), ("rows",))
    plain, prior = (f(whole) for f in (bnp.NormalInverseWishart.from_data,
                                       lambda X: bnp.distributed.from_data(bnp.NormalInverseWishart, spread(X, explicit))))
    values = {name: np.asarray(each.sample(jax.random.key(1))) for name, each in plain.priors.items()}
    for ours, theirs in zip(jax.tree.leaves(prior.built(values)), jax.tree.leaves(plain.built(values)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)

    model = partial(dpm, component=prior)
    kernel = Gibbs([(bnp.ParallelSplitMerge(model, 16), ["z"]), (bnp.HyperparameterGibbs(model), None)])
    mcmc = MCMC(kernel, num_warmup=4, num_samples=5, num_chains=2, chain_method="sequential", progress_bar=False)
    mcmc.run(jax.random.key(3), spread(whole, explicit))
    z = mcmc.get_samples(group_by_chain=True)["z"]
    assert procs == 1 or not z.is_fully_replicated
    labels = bnp.distributed.gather_labels(z)
    draws = bnp.to_arviz(mcmc, whole)
    np.testing.assert_array_equal(draws["posterior"]["z"].values, labels)
    if procs > 1:
        summary = bnp.ParallelSplitMerge(partial(dpm, component=bnp.NormalInverseWishart(np.zeros(2), 0.1, 5.0, np.eye(2))), 16,
                                         keep_labels=False)
        counted = MCMC(summary, num_warmup=2, num_samples=3, num_chains=2, chain_method="vectorized", progress_bar=False)
        counted.run(jax.random.key(3), spread(whole, auto))
        assert np.asarray(counted.get_samples()["counts"]).sum(-1).tolist() == [4800] * 6
        bad = whole.copy()
        bad[4000, 1] = np.nan
        try:
            summary.init(jax.random.key(0), 0, None, (spread(bad, auto),), {})
        except ValueError as error:
            assert "first in row 4000, which process 1 has" in str(error), error
        else:
            raise AssertionError
        own = bnp.NormalInverseWishart(np.zeros(2), 0.1 + rank, 5.0, np.eye(2))
        try:
            bnp.ParallelSplitMerge(partial(dpm, component=own), 16).init(jax.random.key(0), 0, None, (spread(whole, auto),), {})
        except ValueError as error:
            assert "the prior of process 0 differs from that of process 1" in str(error), error
        else:
            raise AssertionError
    clusters = int(bnp.number_of_clusters(labels[:, 3:]).argmax())
    print(procs, clusters, hash(labels.tobytes()) % 10**9)
""")


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_devices() -> None:
    lines = []
    for devices in (1, 4):
        out, _ = start(DEVICES, "look", devices=devices).communicate(timeout=300)
        lines.append(out.split())
    assert [line[0] for line in lines] == ["1", "4"]
    assert lines[0][1:] == lines[1][1:] and int(lines[0][1]) >= 4


@pytest.mark.slow
def test_communication_does_not_grow_with_the_number_of_rows() -> None:
    """At most 32 collectives in the program of a step, of which two in the loop of soft steps, for any number of chunks."""
    out, _ = start(COLLECTIVES, devices=2).communicate(timeout=300)
    (few, *small), (many, *large) = (map(int, line.split()) for line in out.splitlines())
    assert (few, many) == (8192, 131_072) and small == large
    assert large[0] <= 32 and large[1] <= 2, large


@pytest.mark.slow
def test_runs_over_processes_as_written() -> None:
    """`MCMC.run` in a Gibbs composition, chains, summaries, ArviZ and errors: the same labels in both and in one process."""
    both = together(PROCESSES)
    assert both[0] == both[1] and both[0][0] == "2" and int(both[0][1]) >= 4
    alone, _ = start(PROCESSES).communicate(timeout=600)
    assert alone.split()[1:] == both[0][1:]


@pytest.mark.exhaustive
def test_data_may_span_processes() -> None:
    """Two processes on the loopback interface, each with half of the rows: the same labels as in one."""
    both = together(DEVICES)
    alone, _ = start(DEVICES).communicate(timeout=300)
    assert both[0] == both[1] and both[0][0] == "2"
    assert both[0][1:] == alone.split()[1:]


@pytest.mark.parametrize(
    ("alpha", "X", "options", "match"),
    [
        (dist.Gamma(1.0, 1.0), np.eye(4), {}, r"latent sites \['alpha'\]: use Gibbs\(\[\(ParallelSplitMerge"),
        (1.0, np.full((4, 4), np.inf), {}, "infinite value at row 0, column 0"),
        (1.0, np.eye(4), {"init": np.zeros(3, int)}, "initial labels must be 4 whole numbers"),
        (1.0, np.eye(4)[:1], {}, "clustering needs at least 2"),
        (1.0, np.where(np.eye(4) > 0, np.nan, 1.0), {}, r"complete rows .*PartitionGibbs\(model\), \[\"z\", \"missing\"\]"),
    ],
)
def test_bad_input(alpha, X: np.ndarray, options, match: str) -> None:
    component = bnp.NormalInverseWishart(np.zeros(4), 1.0, 6.0, np.eye(4))
    kernel = bnp.ParallelSplitMerge(partial(dpm, component=component, concentration=alpha), **options)
    with pytest.raises(ValueError, match=match):
        kernel.init(jax.random.key(0), 0, None, (X,), {})


@pytest.mark.slow
def test_labels_thinned_beside_summaries(tmp_path: Path) -> None:
    """Summaries of every step and labels of every tenth, saved and loaded."""
    X = (np.random.default_rng(0).random((64, 3)) < 0.5).astype(float)
    model = partial(dpm, component=bnp.BetaBernoulli.from_data(X, learn=False))

    def mcmc() -> MCMC:
        kernel = bnp.ParallelSplitMerge(model, 40, keep_labels=False, init="one", sweep=False)
        return MCMC(kernel, num_warmup=10, num_samples=30, num_chains=2, chain_method="sequential", progress_bar=False)

    run = bnp.ResumableRun(mcmc(), checkpoint_every=10, chunk_fields=("z",))
    run.run(jax.random.key(0), X, extra_fields=("n_clusters",))
    fields = run.get_extra_fields(group_by_chain=True)
    assert fields["n_clusters"].shape == (2, 30) and fields["z"]["z"].shape == (2, 3, 64)
    np.testing.assert_array_equal(fields["z"]["z"].max(-1) + 1, fields["n_clusters"][:, 9::10])
    run.save(tmp_path / "run.npz")
    again = bnp.ResumableRun.load(tmp_path / "run.npz", mcmc(), X)
    np.testing.assert_array_equal(again.get_extra_fields(True)["z"]["z"], fields["z"]["z"])
    with pytest.raises(ValueError, match=r"chunk_fields contains \['summary'\]"):
        bnp.ResumableRun(mcmc(), chunk_fields=("summary",))


@pytest.mark.slow
def test_a_uniform_draw_of_zero_accepts_no_bad_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.array([-50.0, 50.0, -51.0, 51.0])[:, None]
    table = _table(bnp.NormalInverseGamma.from_data(X, learn=False), X)
    labels = jnp.array([0, 1, 0, 1])
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape=(), dtype=float, **_: jnp.zeros(shape, dtype))
    anchors, slots = jnp.full((4, 2), 4).at[0].set(jnp.array([0, 1])), jnp.zeros((4, 2), int).at[0, 1].set(1)
    units = parallel_moves.Units(anchors, slots, jnp.array([0, 0, 4, 4]), jnp.array(1), jnp.array(False))
    clusters = sum_clusters(table, labels, 4)
    moved, accepted, _ = parallel_moves.split_and_merge(jax.random.key(0), table, clusters, Prior(1.0, 0.0), units)
    assert not accepted
    np.testing.assert_array_equal(moved, labels)


@pytest.mark.parametrize("start", few(["one", "fits, few rows"], plain=0))
def test_parallel_chains(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On two devices: from one cluster the draws of sequential chains; from fits, where the chain's key is hidden, no error."""
    if start == "fits, few rows":
        monkeypatch.setattr(parallel_split_merge, "START_ROWS", 12)
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0.0, 1.0, (10, 2)), rng.normal(9.0, 1.0, (10, 2))])
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False))

    def draws(method: str) -> np.ndarray:
        kernel = bnp.ParallelSplitMerge(model, init=start.split(",")[0])
        mcmc = MCMC(kernel, num_warmup=5, num_samples=10, num_chains=2, chain_method=method, progress_bar=False)
        mcmc.run(jax.random.key(0), X)
        return np.asarray(mcmc.get_samples(group_by_chain=True)["z"])

    assert len(jax.devices()) == 2
    found = draws("parallel")
    assert found.shape == (2, 10, 20)
    assert all((z[:10] == 0).all() and (z[10:] == 1).all() for z in found[:, -1])
    if start == "one":
        np.testing.assert_array_equal(found, draws("sequential"))


@pytest.mark.slow
def test_parallel_chains_beside_nuts() -> None:
    X = np.concatenate([np.zeros((6, 1)), 9.0 + np.zeros((6, 1))]) + np.random.default_rng(0).normal(size=(12, 1))
    model = partial(dpm, component=bnp.NormalInverseGamma.from_data(X, learn=False), concentration=dist.Gamma(1.0, 1.0))
    kernel = Gibbs([(bnp.ParallelSplitMerge(model), ["z"]), (NUTS(model), None)])
    mcmc = MCMC(kernel, num_warmup=20, num_samples=20, num_chains=2, chain_method="parallel", progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    assert (np.asarray(mcmc.get_samples(group_by_chain=True)["z"]).max(-1) >= 1).all()
    assert np.isfinite(mcmc.get_samples()["alpha"]).all()
