"""Trees for a page: the arrays that its script reads describe the same nodes as the tree."""

from __future__ import annotations

import json

import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.reports.browsable_tree import BrowsableTree

RNG = np.random.default_rng(0)


def random_tree(n: int) -> bnp.Dendrogram:
    alive, children = list(range(n)), []
    for node in range(n, 2 * n - 1):
        one, other = (alive.pop(RNG.integers(len(alive))) for _ in range(2))
        children.append((one, other))
        alive.append(node)
    return bnp.Dendrogram(np.array(children).reshape(-1, 2), RNG.normal(size=n - 1))


def items_under(tree: bnp.Dendrogram) -> list[frozenset[int]]:
    """Items under every node, merge by merge."""
    found = [frozenset([i]) for i in range(tree.n_items)]
    for left, right in tree.children:
        found.append(found[left] | found[right])
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 40, 200])
def test_nodes_are_those_of_the_tree(n: int) -> None:
    tree = random_tree(n)
    shown = BrowsableTree.of_merges(tree)
    wanted = dict(zip(items_under(tree)[n:], tree.log_odds, strict=True))
    found = [frozenset(shown.order[a : a + size].tolist()) for a, size in zip(shown.first, shown.sizes, strict=True)]
    assert len(found) == n - 1 and set(found) == set(wanted)
    np.testing.assert_array_equal(shown.values, [wanted[each] for each in found])
    for place, parent in enumerate(shown.parents):
        assert parent < place  # parents come first, so that the script reads the nodes once
        assert (parent == -1) == (place == 0)
        if parent >= 0:
            assert found[place] < found[parent]
            assert not any(found[place] < other < found[parent] for other in found)
            assert shown.heights[place] < shown.heights[parent]
    assert sorted(shown.order) == list(range(n))


def test_nodes_of_levels_are_those_with_items_of_their_own() -> None:
    tree = bnp.Hierarchy(np.column_stack([[1, 1, 2, 2, 1, 3], [4, 4, 5, 6, 7, 8]]))
    support = np.linspace(1.0, 0.3, tree.n_nodes)
    shown = BrowsableTree.of_levels(tree, support, list("abcdef"))
    found = {
        frozenset(shown.order[a : a + size].tolist()): value
        for a, size, value in zip(shown.first, shown.sizes, shown.values, strict=True)
    }
    wanted = {frozenset(tree.items(node).tolist()): support[node] for node in range(tree.n_nodes)[::-1]}
    assert found == {each: value for each, value in wanted.items() if len(each) > 1}
    assert shown.parents[0] == -1 and (shown.parents[1:] < np.arange(1, len(shown.parents))).all()
    assert shown.clusters.tolist() == [0, 0, 1, 1, 0, 2]


def test_arrays_are_json_whatever_the_odds_and_names() -> None:
    tree = bnp.Dendrogram(np.array([[0, 1], [2, 3], [4, 5]]), np.array([np.inf, 1.23456, -np.inf]))
    content = BrowsableTree.of_merges(tree, ["</script>", "b\nb", "c", "d"], classes=["x", "x", "y", "y"]).as_json()
    again = json.loads(json.dumps(content, allow_nan=False))
    assert again["names"][:2] == ["</script>", "b\\u000ab"] and again["measure"] == "odds"
    assert dict(zip(again["sizes"], again["values"], strict=True))[4] <= -1e300
    assert None in again["values"] and 1.23 in again["values"]
    assert again["classes"] == [0, 0, 1, 1] and again["class_colors"] == again["clusters"][::2]
    assert BrowsableTree.of_merges(tree).as_json()["names"] == ["0", "1", "2", "3"]


def test_classes_have_the_colours_of_the_clusters_that_they_match() -> None:
    tree = random_tree(30)
    clusters = tree.cut()
    classes = np.array(["z", "y", "x"])[np.minimum(clusters, 2)]
    content = BrowsableTree.of_merges(tree, classes=classes).as_json()
    colors = content["class_colors"]
    assert len(set(colors)) == len(colors)
    for name, color in zip(content["class_names"], colors, strict=True):
        if name != "x":
            assert color == int(clusters[classes == name][0])


def test_a_page_of_many_leaves_is_small(tmp_path) -> None:
    from bnp_hier.reports.web_page import Section, write_page

    shown = BrowsableTree.of_merges(random_tree(5000), [f"a name of an item {i}" for i in range(5000)])
    path = write_page(tmp_path / "t.html", title="t", sections=[Section("s", trees={"c": shown})])
    assert path.stat().st_size < 500_000
