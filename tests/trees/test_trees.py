"""Trees as values: cuts, levels, exports and scores, against slow and obvious recursions."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster import hierarchy as scipy_hierarchy

from bnp_hier.trees import Dendrogram, Hierarchy
from bnp_hier.utils.labels import canonical_labels

many_examples = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def dendrograms(draw, min_items=2, max_items=12):
    """Any merge order, any log odds (also ties and extremes)."""
    n = draw(st.integers(min_items, max_items))
    alive, children = list(range(n)), []
    for t in range(n - 1):
        pair = [alive.pop(draw(st.integers(0, len(alive) - 1))) for _ in range(2)]
        children.append(pair)
        alive.append(n + t)
    odds = st.one_of(st.floats(-50, 50), st.sampled_from([0.0, -800.0, 800.0, 1.0]))
    log_odds = draw(st.lists(odds, min_size=n - 1, max_size=n - 1))
    return Dendrogram(np.array(children, dtype=int).reshape(-1, 2), np.array(log_odds, dtype=float))


def random_tree(n, seed=0):
    rng = np.random.default_rng(seed)
    alive, children = list(range(n)), []
    for t in range(n - 1):
        i, j = rng.choice(len(alive), 2, replace=False)
        children.append([alive[i], alive[j]])
        alive = [node for k, node in enumerate(alive) if k not in (i, j)] + [n + t]
    return Dendrogram(np.array(children), rng.normal(0, 3, n - 1))


def leaves(tree, node):
    """Items under a node, by recursion."""
    if node < tree.n_items:
        return {int(node)}
    left, right = tree.children[node - tree.n_items]
    return leaves(tree, left) | leaves(tree, right)


def clusters(labels):
    return {frozenset(np.flatnonzero(labels == k).tolist()) for k in np.unique(labels)}


# ---- cutting ---------------------------------------------------------------------------------------------------------


def naive_cut(tree, threshold):
    """Heller & Ghahramani (2005): go down from the root, stop where the merge probability reaches the threshold."""

    def down(node):
        if node < tree.n_items:
            return [leaves(tree, node)]
        t = node - tree.n_items
        odds = float(tree.log_odds[t])
        probability = 1 / (1 + np.exp(-odds)) if odds > -700 else 0.0
        if probability >= threshold:
            return [leaves(tree, node)]
        left, right = tree.children[t]
        return down(left) + down(right)

    return {frozenset(cluster) for cluster in down(2 * tree.n_items - 2)}


@many_examples
@given(dendrograms(), st.sampled_from([0.1, 0.25, 0.5, 0.75, 0.9]))
def test_cut_is_the_recursion(tree, threshold):
    labels = tree.cut(threshold)
    assert clusters(labels) == naive_cut(tree, threshold)
    np.testing.assert_array_equal(labels, canonical_labels(labels))
    assert labels[0] == 0 and labels.dtype == np.int64


@many_examples
@given(dendrograms())
def test_cuts_at_the_ends(tree):
    """Threshold 0 always stops at the root; threshold 1 never stops (no finite odds make a probability of one)."""
    np.testing.assert_array_equal(tree.cut(0.0), np.zeros(tree.n_items))
    np.testing.assert_array_equal(tree.cut(1.0), np.arange(tree.n_items))
    np.testing.assert_array_equal(tree.cut(), tree.cut(0.5))


@many_examples
@given(dendrograms())
def test_cuts_are_nested(tree):
    """A higher threshold refines."""
    previous = clusters(tree.cut(0.0))
    for threshold in (0.2, 0.5, 0.8, 1.0):
        finer = clusters(tree.cut(threshold))
        assert all(any(cluster <= whole for whole in previous) for cluster in finer)
        previous = finer


def test_cut_by_hand():
    """A good pair below a bad pair below a good root: the way down must pass the root first."""
    tree = Dendrogram([[0, 2], [4, 1], [5, 3]], [2.0, -1.0, -0.5])
    assert tree.cut().tolist() == [0, 1, 0, 2]
    assert Dendrogram([[0, 2], [4, 1], [5, 3]], [-2.0, -1.0, 0.0]).cut().tolist() == [0, 0, 0, 0]  # r = ½ stops
    assert tree.cut(0.3).tolist() == [0, 0, 0, 0]
    np.testing.assert_allclose(tree.probabilities, 1 / (1 + np.exp([-2.0, 1.0, 0.5])), rtol=1e-15)


def test_infinite_odds():
    """A merge that is certain, or impossible, cuts as it says."""
    tree = Dendrogram([[0, 1], [2, 3], [4, 5]], [np.inf, -np.inf, -1.0])
    assert tree.cut(1.0).tolist() == [0, 0, 1, 2]
    assert tree.cut(1e-300).tolist() == [0, 0, 0, 0]
    assert Dendrogram([[0, 1]], [-np.inf]).cut(1e-300).tolist() == [0, 1]
    assert tree.cut(0.0).tolist() == [0, 0, 0, 0]
    heights = tree.heights()
    assert np.isfinite(heights).all() and heights[2] == heights[1] > np.logaddexp(0.0, 1.0)
    assert "nan" not in tree.to_newick() and "inf" not in tree.to_newick()


@pytest.mark.parametrize("threshold", [-0.1, 1.1, np.nan, 50])
def test_thresholds_are_probabilities(threshold):
    with pytest.raises(ValueError, match="threshold must be a probability between 0 and 1, but it is"):
        random_tree(4).cut(threshold)


# ---- sizes, parents, order, heights --------------------------------------------------------------------------------


@many_examples
@given(dendrograms())
def test_sizes_parents_and_order(tree):
    n = tree.n_items
    order = tree.leaf_order()
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    position = np.argsort(order)
    for node in range(2 * n - 1):
        members = sorted(leaves(tree, node))
        assert tree.sizes[node] == len(members)
        places = np.sort(position[members])
        np.testing.assert_array_equal(places, np.arange(places[0], places[0] + len(members)))
        parent = tree.parents[node]
        assert (parent == -1) == (node == 2 * n - 2)
        if parent >= 0:
            assert node in tree.children[parent - n]
    for left, right in tree.children:  # left is drawn to the left
        assert position[list(leaves(tree, left))].max() < position[list(leaves(tree, right))].min()


@many_examples
@given(dendrograms())
def test_heights_never_fall_towards_the_root(tree):
    """Each height is the largest −log r among the node's descendants; ranks count the merges."""
    n = tree.n_items
    own = np.logaddexp(0, -tree.log_odds)
    for t, height in enumerate(tree.heights()):
        below = [s for s in range(n - 1) if leaves(tree, n + s) <= leaves(tree, n + t)]
        assert height == pytest.approx(max(own[below]), rel=1e-14, abs=0)
    np.testing.assert_array_equal(tree.heights("rank"), np.arange(1, n))


def test_unknown_heights():
    with pytest.raises(ValueError, match="heights must be .*'tall'"):
        random_tree(3).heights("tall")
    with pytest.raises(ValueError, match="heights must be .*'tall'"):
        random_tree(3).to_linkage("tall")


# ---- SciPy ---------------------------------------------------------------------------------------------------------


@many_examples
@given(dendrograms(), st.sampled_from(["odds", "rank"]))
def test_linkage_is_scipys(tree, kind):
    """Valid, monotone, and the same subtrees; SciPy's own cuts are unions of complete subtrees in height order."""
    linkage = tree.to_linkage(kind)
    assert linkage.shape == (tree.n_items - 1, 4) and linkage.dtype == np.float64
    assert scipy_hierarchy.is_valid_linkage(linkage, throw=True)
    assert scipy_hierarchy.is_monotonic(linkage)
    assert np.all(linkage[:, 0] < linkage[:, 1])
    n, sets = tree.n_items, {i: {i} for i in range(tree.n_items)}
    for t, (a, b, _, size) in enumerate(linkage):
        sets[n + t] = sets[int(a)] | sets[int(b)]
        assert len(sets[n + t]) == size
    expected = {frozenset(leaves(tree, node)) for node in range(2 * n - 1)}
    assert {frozenset(members) for members in sets.values()} == expected

    heights = dict(zip(range(n, 2 * n - 1), tree.heights(kind), strict=True))
    for level in np.unique(tree.heights(kind)):
        kept = [leaves(tree, node) for node in range(2 * n - 1) if heights.get(node, -1.0) <= level]
        largest = {frozenset(a) for a in kept if not any(a < b for b in kept)}
        assert clusters(scipy_hierarchy.fcluster(linkage, level, "distance")) == largest


def test_scipy_draws_the_leaves_of_every_subtree_together():
    tree = random_tree(15, seed=3)
    drawn = scipy_hierarchy.dendrogram(tree.to_linkage(), no_plot=True)["leaves"]
    position = np.argsort(drawn)
    for node in range(15, 29):
        places = position[list(leaves(tree, node))]
        assert np.ptp(places) == len(places) - 1


# ---- networkx and newick -------------------------------------------------------------------------------------------


@many_examples
@given(dendrograms())
def test_networkx_is_the_tree(tree):
    graph = tree.to_networkx()
    n = tree.n_items
    assert nx.is_arborescence(graph) and len(graph) == 2 * n - 1
    assert [node for node, degree in graph.in_degree() if degree == 0] == [2 * n - 2]
    for node, data in graph.nodes(data=True):
        below = {node} | nx.descendants(graph, node)
        assert {item for item in below if item < n} == leaves(tree, node)
        assert data["size"] == len(leaves(tree, node))
        if node >= n:
            assert data["log_odds"] == tree.log_odds[node - n] and data["height"] == tree.heights()[node - n]
            assert set(graph.successors(node)) == set(tree.children[node - n].tolist())


def parse_newick(text):
    """Names, nesting and branch lengths: ``(name or [children], length)``; quotes doubled inside quoted names."""
    position = 0

    def take(character):
        nonlocal position
        assert text[position] == character, (text, position)
        position += 1

    def name():
        nonlocal position
        if text[position] == "'":
            out = ""
            while True:
                end = text.index("'", position + 1)
                out, position = out + text[position + 1 : end], end + 1
                if text[position] != "'":
                    return out
                out += "'"
        start = position
        while text[position] not in "(),:;'[] \t\n":
            position += 1
        return text[start:position].replace("_", " ")  # the standard's meaning of a bare underscore

    def subtree():
        nonlocal position
        if text[position] == "(":
            children = []
            while text[position] in "(,":
                position += 1
                children.append(subtree())
            take(")")
            label = children
        else:
            label = name()
        length = None
        if text[position] == ":":
            start = position = position + 1
            while text[position] not in ",();":
                position += 1
            length = float(text[start:position])
        return label, length

    tree = subtree()
    take(";")
    assert position == len(text)
    return tree


def newick_sets(parsed):
    """Set of leaf names of a parsed subtree, and of every subtree below it."""
    label, _ = parsed
    if isinstance(label, str):
        return {label}, {frozenset([label])}
    whole, sets = set(), set()
    for child in label:
        members, below = newick_sets(child)
        whole |= members
        sets |= below
    return whole, sets | {frozenset(whole)}


def depths(parsed, above=0.0):
    """Distance from the root of every leaf."""
    label, length = parsed
    here = above + (length or 0.0)
    if isinstance(label, str):
        return {label: here}
    return {name: depth for child in label for name, depth in depths(child, here).items()}


@many_examples
@given(dendrograms())
def test_newick_is_the_tree(tree):
    parsed = parse_newick(tree.to_newick())
    n = tree.n_items
    expected = {frozenset(map(str, leaves(tree, node))) for node in range(2 * n - 1)}
    assert newick_sets(parsed) == ({str(i) for i in range(n)}, expected)
    top = tree.heights()[-1]
    for depth in depths(parsed).values():  # all leaves hang equally deep; lengths are printed with six digits
        assert depth == pytest.approx(top, rel=1e-5 * n, abs=1e-12)


AWKWARD = ["plain", "two words", "it's", "a,b", "(x)", "[y]", "c:d;", "tab\there", 'q"q', "''", "é", "x-1.5", "", "under_score"]


def test_newick_names_are_quoted():
    """Whatever the names, a reader of the standard gets them back."""
    tree = random_tree(len(AWKWARD), seed=1)
    names, sets = newick_sets(parse_newick(tree.to_newick(AWKWARD)))
    assert names == set(AWKWARD)
    for node in range(tree.n_items, 2 * tree.n_items - 1):
        assert frozenset(AWKWARD[i] for i in leaves(tree, node)) in sets
    assert "'" not in tree.to_newick(["a-b", "C.3", "ü"] + list("defghijklmn"))


def test_newick_by_hand():
    tree = Dendrogram([[2, 0], [3, 1]], [np.log(1.0), np.log(0.25)])
    first, second = np.log(2), np.log(5)
    assert tree.to_newick(["a", "b", "c"]) == f"((c:{first:.6g},a:{first:.6g}):{second - first:.6g},b:{second:.6g});"
    with pytest.raises(ValueError, match="names must have one entry per item, 3 in total, but there are 2"):
        tree.to_newick(["a", "b"])


# ---- purity ----------------------------------------------------------------------------------------------------------


def naive_purity(tree, y):
    """Mean over all pairs of one class of that class's share in the smallest subtree that holds both."""
    n, shares = tree.n_items, []
    subtrees = sorted((leaves(tree, node) for node in range(n, 2 * n - 1)), key=len)
    for i, j in itertools.combinations(range(n), 2):
        if y[i] == y[j]:
            smallest = next(s for s in subtrees if i in s and j in s)
            shares.append(np.mean([y[k] == y[i] for k in smallest]))
    return np.mean(shares)


@many_examples
@given(dendrograms(min_items=3), st.data())
def test_purity_is_the_mean_over_pairs(tree, data):
    y = data.draw(
        st.lists(st.integers(0, 2), min_size=tree.n_items, max_size=tree.n_items).filter(lambda y: len(set(y)) < len(y))
    )
    assert tree.purity(y) == pytest.approx(naive_purity(tree, y), rel=1e-13)
    names = np.array(["red", "blue", "green"])[np.array(y)]
    assert tree.purity(names) == pytest.approx(naive_purity(tree, y), rel=1e-13)
    assert tree.purity(y) <= 1 + 1e-15


def test_purity_at_its_ends():
    """One when each class is a subtree; for shuffled classes about the classes' shares."""
    pure = Dendrogram([[0, 1], [2, 3], [4, 5]], np.zeros(3))
    assert pure.purity([0, 0, 1, 1]) == 1.0
    assert pure.purity(["a"] * 4) == 1.0
    assert pure.purity([0, 1, 0, 1]) == pytest.approx(0.5)
    assert pure.purity([0, 1, 2, 0]) == pytest.approx(0.5)  # classes with one item take no part


def test_purity_refuses():
    tree = random_tree(4)
    with pytest.raises(ValueError, match="purity needs a class with at least two items"):
        tree.purity([0, 1, 2, 3])
    with pytest.raises(ValueError, match=r"one label per item, shape \(4,\), but it has shape \(3,\)"):
        tree.purity([0, 0, 1])
    with pytest.raises(ValueError, match=r"one label per item, shape \(4,\)"):
        tree.purity(np.zeros((2, 2)))


# ---- large and small trees -------------------------------------------------------------------------------------------


def caterpillar(n):
    """Every merge adds one item: the deepest tree there is."""
    inner = np.append(0, np.arange(n, 2 * n - 2))
    return Dendrogram(np.column_stack([inner, np.arange(1, n)]), np.linspace(3.0, -3.0, n - 1))


def test_a_deep_tree_needs_no_recursion():
    n = 5000
    tree = caterpillar(n)
    labels = tree.cut()
    together = (tree.log_odds >= 0).sum() + 1
    assert (labels == 0).sum() == together and labels.max() == n - together
    np.testing.assert_array_equal(tree.leaf_order(), np.arange(n))
    assert tree.sizes[-1] == n and tree.parents[0] == n
    linkage = tree.to_linkage()
    assert scipy_hierarchy.is_valid_linkage(linkage) and scipy_hierarchy.is_monotonic(linkage)
    assert nx.is_arborescence(tree.to_networkx())
    text = tree.to_newick()
    assert text.count("(") == text.count(")") == n - 1 and text.startswith("(" * (n - 1) + "0:")
    half = np.arange(n) < n // 2
    # pairs of the first half meet in pure subtrees; of the second, at item j, in a subtree of j + 1 items with j + 1 − n/2
    j = np.arange(n // 2, n)
    own = j - n // 2
    second = (own * (own + 1) / (j + 1)).sum()
    pairs = n // 2 * (n // 2 - 1) / 2
    assert tree.purity(half) == pytest.approx((pairs + second) / (2 * pairs), rel=1e-12)


def test_a_single_item_is_a_tree():
    tree = Dendrogram(np.zeros((0, 2), int), np.zeros(0))
    assert tree.n_items == 1 and tree.cut().tolist() == [0] and tree.leaf_order().tolist() == [0]
    assert tree.to_newick() == "0;" and tree.to_newick(["a b"]) == "'a b';"
    assert list(tree.to_networkx()) == [0] and tree.to_linkage().shape == (0, 4)
    with pytest.raises(ValueError, match="purity needs"):
        tree.purity([0])


BAD = {
    "a node merged twice": ([[0, 1], [0, 2]], [0.0, 0.0], "every node except the root must be merged exactly once"),
    "a node of the future": ([[0, 4], [1, 2], [3, 5]], [0.0] * 3, "after it was created"),
    "itself": ([[0, 3], [1, 2]], [0.0, 0.0], "exactly once, after it was created"),
    "a negative node": ([[0, -1]], [0.0], "exactly once"),
    "beyond the root": ([[0, 7]], [0.0], "exactly once"),
    "three children": ([[0, 1, 2]], [0.0], r"children must have shape \(n - 1, 2\).*are \(1, 3\) and \(1,\)"),
    "a flat list": ([0, 1], [0.0], r"children must have shape \(n - 1, 2\)"),
    "odds missing": ([[0, 1], [3, 2]], [0.0], r"log_odds shape \(n - 1,\), .* are \(2, 2\) and \(1,\)"),
    "odds as table": ([[0, 1]], [[0.0]], r"log_odds shape \(n - 1,\)"),
    "half a node": ([[0.5, 1]], [0.0], "whole|integer"),
    "NaN odds": ([[0, 1]], [np.nan], "NaN|nan|number"),
}


@pytest.mark.parametrize("name", BAD)
def test_arrays_that_are_no_tree(name):
    children, log_odds, match = BAD[name]
    with pytest.raises(ValueError, match=match):
        Dendrogram(np.array(children), np.array(log_odds))


def test_a_dendrogram_is_frozen_and_takes_lists():
    tree = Dendrogram([[0, 1]], [0])
    assert tree.children.dtype == np.int64 and tree.log_odds.dtype == np.float64
    with pytest.raises(AttributeError):
        tree.children = np.zeros((1, 2))


def test_canonical_labels():
    assert canonical_labels([7, 7, 2, 9, 2]).tolist() == [0, 0, 1, 2, 1]
    assert canonical_labels(np.array(["b", "a", "b"])).tolist() == [0, 1, 0]
    assert canonical_labels(np.zeros(0, int)).shape == (0,)


def test_purity_of_a_random_leaf_and_partner():
    """Footnote 2 of Heller & Ghahramani (2005): an item uniformly, then another of its class."""
    rng = np.random.default_rng(0)
    tree = Dendrogram([[0, 1], [2, 3], [7, 8], [4, 5], [9, 10], [6, 11]], np.zeros(6))
    y = np.array([0, 0, 1, 0, 1, 1, 1])
    members = [{i} for i in range(7)]
    for left, right in tree.children:
        members.append(members[left] | members[right])
    total = 0.0
    for i in range(7):
        same = [j for j in range(7) if j != i and y[j] == y[i]]
        shares = []
        for j in same:
            smallest = min((m for m in members if {i, j} <= m), key=len)
            shares.append(np.mean(y[list(smallest)] == y[i]))
        total += np.mean(shares) / 7
    assert tree.purity(y, pick="leaf") == pytest.approx(total, abs=1e-12)
    assert tree.purity(y) != tree.purity(y, pick="leaf")
    balanced = rng.permutation([0, 0, 0, 1, 1, 1, 2])
    assert tree.purity(balanced) == pytest.approx(tree.purity(balanced, pick="leaf"), abs=1e-12)
    with pytest.raises(ValueError, match='pick must be "pair" or "leaf"'):
        tree.purity(y, pick="node")


# ---- trees of any branching ------------------------------------------------------------------------------------------

PATHS = np.array([[7, 3], [7, 9], [2, 5], [7, 3], [2, 5]])  # numbers as a sampler gives them


@st.composite
def hierarchies(draw):
    """Random names of branches; equal prefixes are equal nodes."""
    n, depth = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    return [tuple(draw(st.lists(st.sampled_from("abc"), min_size=depth, max_size=depth))) for _ in range(n)]


def test_nodes_are_renamed_level_by_level():
    weights = np.arange(20.0).reshape(10, 2)
    tree = Hierarchy(PATHS, labels=np.array([0, 1, 4, 0, 4]), weights=weights)
    np.testing.assert_array_equal(tree.paths, [[1, 3], [1, 4], [2, 5], [1, 3], [2, 5]])
    np.testing.assert_array_equal(tree.parents, [-1, 0, 0, 1, 1, 2])
    np.testing.assert_array_equal(tree.levels, [0, 1, 1, 2, 2, 2])
    np.testing.assert_array_equal(tree.sizes, [5, 3, 2, 2, 1, 2])
    np.testing.assert_array_equal(tree.weights, weights[[0, 7, 2, 3, 9, 5]])
    np.testing.assert_array_equal(tree.labels, [0, 1, 4, 0, 4])
    assert (tree.n_items, tree.depth, tree.n_nodes) == (5, 2, 6)


def test_negative_node_numbers_have_no_weights():
    """They would be those of other nodes, counted from the end."""
    np.testing.assert_array_equal(Hierarchy(np.array([[-1], [1]])).paths, [[1], [2]])
    with pytest.raises(ValueError, match="node -1 has no row of weights"):
        Hierarchy(np.array([[-1], [1]]), weights=np.eye(3))


@many_examples
@given(hierarchies())
def test_levels_and_items_follow_the_prefixes(names):
    tree = Hierarchy.from_names(names)
    for level in range(tree.depth + 2):
        expected = {frozenset(i for i, other in enumerate(names) if other[:level] == path[:level]) for path in names}
        labels = tree.labels_at(level)
        assert {frozenset(np.flatnonzero(labels == k).tolist()) for k in np.unique(labels)} == expected
        np.testing.assert_array_equal(labels, canonical_labels(labels))
        assert expected <= tree.clades()
    for node in range(tree.n_nodes):
        assert len(tree.items(node)) == tree.sizes[node]


@many_examples
@given(hierarchies())
def test_exports_hold_the_same_tree(names):
    tree = Hierarchy.from_names(names)
    graph = tree.to_networkx()
    assert nx.is_arborescence(graph) if tree.n_nodes > 1 else graph.number_of_nodes() == 1
    assert {frozenset(data["items"]) for _, data in graph.nodes(data=True)} == tree.clades()
    assert nx.dag_longest_path_length(graph) == tree.depth
    assert clades_of_newick(tree.to_newick()) == tree.clades() | {frozenset([i]) for i in range(tree.n_items)}


def clades_of_newick(text):
    """The sets of leaves between every pair of brackets, and the single leaves."""
    found, waiting, word = set(), [], ""
    for character in text.replace(":1", ""):
        if character in "(),;":
            if word:
                found.add(frozenset([int(word)]))
                waiting[-1].add(int(word))
                word = ""
            if character == "(":
                waiting.append(set())
            elif character == ")":
                done = waiting.pop()
                found.add(frozenset(done))
                if waiting:
                    waiting[-1] |= done
        else:
            word += character
    assert not waiting
    return found


def test_newick_names_items_and_quotes_them():
    assert Hierarchy(PATHS).to_newick(["ant", "bee (wild)", "cow", "fly", "elk"]) == (
        "(((ant:1,fly:1):1,('bee (wild)':1):1):1,((cow:1,elk:1):1):1);"
    )


def test_short_paths_are_extended():
    tree = Hierarchy.from_names([("a",), ("a", "b"), ("a", "b", None), ("c", "b"), ("a", float("nan"))])
    np.testing.assert_array_equal(tree.labels_at(1), [0, 0, 0, 1, 0])
    np.testing.assert_array_equal(tree.labels_at(2), [0, 1, 1, 2, 0])  # "b" under "a" is not "b" under "c"
    assert tree.n_nodes == 6


def test_scores_by_level():
    """Two of six items are on wrong leaves, none under a wrong child of the root; levels below a tree's own repeat its last."""
    tree = Hierarchy(np.array([[1, 2], [1, 2], [1, 3], [4, 5], [4, 5], [4, 5]]))
    truth = [("x", "p"), ("x", "p"), ("x", "p"), ("y", "q"), ("y", "q"), ("y", "r", "s")]
    scores = tree.scores(truth)
    assert list(scores.index) == [1, 2, 3] and list(scores.columns) == ["purity", "NMI", "ARI", "F-measure"]
    np.testing.assert_allclose(scores.loc[1], 1.0)
    np.testing.assert_allclose(scores.loc[2, "purity"], 5 / 6)
    np.testing.assert_allclose(scores.loc[2, "F-measure"], (3 * 0.8 + 2 * 0.8 + 1 * 0.5) / 6)
    np.testing.assert_allclose(scores.loc[3], scores.loc[2])
    perfect = Hierarchy.from_names(truth).scores(truth)
    np.testing.assert_allclose(perfect, 1.0)


def test_representatives_are_nearest_to_the_mean():
    X = np.array([[0.0, 0], [1, 0], [5, 5], [0.4, np.nan], [9, 9]])
    found = Hierarchy(PATHS).representatives(X, 2)
    np.testing.assert_array_equal(found[1], [3, 0])  # of items 0, 1 and 3, whose mean is (0.47, 0)
    np.testing.assert_array_equal(found[4], [1])
    assert len(found) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1, 2], [3, 2]],), "node 2 has two different parents on the paths of items 0 and 1"),
        (([[1, 2], [2, 3]],), "node 2 occurs on level 2 and on a level above it"),
        (([[0, 2]],), "node 0 occurs on level 1 and on a level above it"),
        (([1, 2],), r"whole numbers of shape \(n, depth\).* but they have shape \(2,\)"),
        (([[1.5]],), "type float64"),
        ((np.zeros((3, 0), int),), r"shape \(3, 0\)"),
        (([[1], [2]], [0]), r"labels must have one entry per item, shape \(2,\), but they have shape \(1,\)"),
        (([[1], [2]], None, [[0.5, 0.5]]), r"a row for every node number up to 2, but they have shape \(1, 2\)"),
    ],
)
def test_bad_hierarchies(arguments, message):
    with pytest.raises(ValueError, match=message):
        Hierarchy(*arguments)


def test_bad_use_of_hierarchies():
    tree = Hierarchy(PATHS)
    with pytest.raises(ValueError, match="level must be a whole number of at least 0"):
        tree.labels_at(-1)
    with pytest.raises(ValueError, match="node must be a number from 0 to 5, but it is 6"):
        tree.items(6)
    with pytest.raises(ValueError, match="truth_paths must have one path per item, 5 in total, but it has 2"):
        tree.scores([("a",), ("b",)])
    with pytest.raises(ValueError, match="the path of item 1 is \\[\\]"):
        tree.scores([("a",), (), ("b",), ("b",), ("b",)])
    with pytest.raises(ValueError, match="missing names only at its end, but the path of item 0 is"):
        Hierarchy.from_names([("a", None, "b")])
    with pytest.raises(ValueError, match="there are no paths"):
        Hierarchy.from_names([])
    with pytest.raises(ValueError, match="names must have one entry per item, 5 in total, but there are 1"):
        tree.to_newick(["a"])
    with pytest.raises(ValueError, match="X must have one row per item, 5"):
        tree.representatives(np.zeros((4, 2)))


# ---- binary trees as hierarchies -------------------------------------------------------------------------------------


def test_levels_are_what_is_left_when_the_last_merges_are_undone():
    X = np.random.default_rng(0).normal(size=(30, 2))
    merges = scipy_hierarchy.linkage(X, "ward")
    tree = Dendrogram.from_linkage(merges)
    hierarchy = tree.to_hierarchy([1, 3, 3, 9, 30])
    assert [len(np.unique(hierarchy.labels_at(level))) for level in range(1, 6)] == [1, 3, 3, 9, 30]
    for level, count in ((2, 3), (4, 9)):
        flat = canonical_labels(scipy_hierarchy.fcluster(merges, count, "maxclust"))
        np.testing.assert_array_equal(hierarchy.labels_at(level), flat)


@pytest.mark.parametrize("counts", [[], [0, 2], [3, 2], [2, 31], [1.5]])
def test_bad_counts(counts):
    tree = Dendrogram(np.array([[0, 1], [2, 3]]), np.zeros(2))
    with pytest.raises(ValueError, match="counts must be whole numbers from 1 to 3, one per level"):
        tree.to_hierarchy(counts)


def test_no_linkage_matrix():
    with pytest.raises(ValueError, match=r"Z must be a linkage matrix, .* but it has shape \(2, 3\)"):
        Dendrogram.from_linkage(np.zeros((2, 3)))
