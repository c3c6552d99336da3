"""Sample a Dirichlet-process mixture of the rows of Parquet files, by as many processes and machines as you start.

    python examples/distributed/sample.py rows/ results/                      # one process
    mpirun -n 4 python examples/distributed/sample.py rows/ results/ --auto   # Open MPI, Slurm, a TPU pod, ...
    python examples/distributed/sample.py rows/ results/ --coordinator host:1234 --processes 4 --process 0   # by hand

Every process reads its files, and no row leaves it. Started again with the same arguments, a job that has ended goes on from
its last checkpoint. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, help="folder of Parquet files with the same numeric columns")
    parser.add_argument("results", type=Path, help="folder for checkpoints and results, which all processes see")
    parser.add_argument(
        "--auto", action="store_true", help="let JAX find the other processes (Open MPI, Slurm, Kubernetes, ...)"
    )
    parser.add_argument("--coordinator", help="host:port of process 0, if processes are started by hand")
    parser.add_argument("--processes", type=int, help="number of processes, with --coordinator")
    parser.add_argument("--process", type=int, help="number of this process, with --coordinator")
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--checkpoint-every", type=int, default=50)
    parser.add_argument("--max-clusters", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def join_the_others(arguments: argparse.Namespace) -> None:
    """Connect the processes; must come before anything else that uses JAX."""
    import jax

    jax.config.update("jax_enable_x64", True)  # sums in double precision, of rows in single precision
    if not (arguments.auto or arguments.coordinator):
        return
    try:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    except AttributeError:
        pass  # older versions have no such choice, and newer ones may need none
    own = {} if arguments.auto else {"num_processes": arguments.processes, "process_id": arguments.process}
    # a process that has died is noticed after the timeout, if its connections did not end before
    jax.distributed.initialize(arguments.coordinator, heartbeat_timeout_seconds=20, **own)


def own_files(folder: Path, number: int, processes: int) -> list[Path]:
    """The files of one process: consecutive ones, as many as those of every other process."""
    files = sorted(folder.glob("*.parquet"))
    if not files or len(files) % processes:
        sys.exit(f"{folder} has {len(files)} Parquet files, which {processes} processes cannot share equally")
    each = len(files) // processes
    return files[number * each : (number + 1) * each]


def main() -> None:
    arguments = read_arguments()
    join_the_others(arguments)

    import jax
    import numpy as np
    import pandas as pd
    from numpyro.infer import MCMC, Gibbs

    import bnp_hier as bnp

    number, processes = jax.process_index(), jax.process_count()
    files = own_files(arguments.rows, number, processes)
    tables = [pd.read_parquet(file).to_numpy(np.float32) for file in files]
    X = bnp.distributed.shard_rows(tables)  # files may have different numbers of rows
    prior = bnp.NormalInverseWishart.from_data(X)  # from all rows, by one reduction
    model = partial(bnp.models.dpm, component=prior)
    partition = bnp.ParallelSplitMerge(model, arguments.max_clusters)
    kernel = Gibbs([(partition, ["z"]), (bnp.HyperparameterGibbs(model), None)])
    mcmc = MCMC(kernel, num_warmup=arguments.warmup, num_samples=arguments.samples, progress_bar=sys.stderr.isatty())

    # sizes and numbers of clusters are collected at every step, labels once per checkpoint
    collected = ("~z.z", "block_states.0.n_clusters", "block_states.0.log_joint", "block_states.0.summary.counts")
    path = arguments.results / "run.npz"
    every = arguments.checkpoint_every
    if decided_by_first(path.exists()):
        run = bnp.ResumableRun.load(path, mcmc, X, checkpoint_every=every)
        print(f"process {number}: going on from step {run.steps}", flush=True)
        run.resume(X)
    else:
        arguments.results.mkdir(parents=True, exist_ok=True)
        run = bnp.ResumableRun(mcmc, every, path=path, chunk_fields=("block_states.0.z.z",))
        run.run(jax.random.key(arguments.seed), X, extra_fields=collected)

    fields = run.get_extra_fields()
    labels = bnp.distributed.gather_labels(fields["block_states.0.z.z"])[-1]  # of the last draw
    starts = np.cumsum([0, *(len(table) for table in tables)])
    starts += offset_of(sum(len(table) for table in tables), number)
    for file, start, end in zip(files, starts[:-1], starts[1:], strict=True):
        pd.DataFrame({"cluster": labels[start:end]}).to_parquet(arguments.results / f"labels-{file.name}")
    if number == 0:
        draws, counts = np.unique(fields["block_states.0.n_clusters"], return_counts=True)
        summary = {
            "rows": len(labels),
            "probability of each number of clusters": dict(zip(map(str, draws), (counts / counts.sum()).tolist(), strict=True)),
            "mean sizes of the clusters, largest first": fields["block_states.0.summary.counts"]
            .mean(0)[: draws.max()]
            .tolist(),
        }
        (arguments.results / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
        print(f"{len(labels)} rows in {labels.max() + 1} clusters; results are in {os.fspath(arguments.results)}", flush=True)


def decided_by_first(found: bool) -> bool:
    """What process 0 finds, because all processes must go on in the same way."""
    import jax
    import numpy as np

    if jax.process_count() == 1:
        return found
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return bool(broadcast_one_to_all(np.array(found)))


def offset_of(rows: int, number: int) -> int:
    """Number of rows in the processes before this one."""
    import jax
    import numpy as np

    if jax.process_count() == 1:
        return 0
    from jax.experimental.multihost_utils import process_allgather

    return int(np.asarray(process_allgather(np.array(rows)))[:number].sum())


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        if "another process of this job has ended" not in str(error):
            raise
        print(error, file=sys.stderr, flush=True)
        os._exit(1)  # leaving in the usual way would wait for the other process
