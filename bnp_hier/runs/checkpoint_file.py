"""Trees of arrays in one file of plain numbers: nothing in it is code."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bnp_hier.utils.files import replacing
from bnp_hier.utils.npy_files import read_arrays

__all__ = ["Checkpoint", "checkpoint_kind", "fingerprint", "read_checkpoint", "restore", "write_checkpoint"]


class Checkpoint(NamedTuple):
    """What a file holds.

    - **header** - whole numbers, texts, and lists of them.
    - **leaves** - for each tree, its leaves by path.
    """

    header: dict[str, Any]
    leaves: dict[str, dict[str, Any]]


def fingerprint(tree: Any) -> str:
    """SHA-256 of the types, shapes and values of all leaves, and of their places in the tree."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(leaf)
        values = array.tobytes() if array.dtype != object else type(leaf).__name__.encode()
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}\n".encode() + values)
    return digest.hexdigest()


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def write_checkpoint(
    path: str | os.PathLike[str], header: Mapping[str, Any], trees: Mapping[str, Any], *, compress: bool = False
) -> None:
    """Write named trees as an .npz file; a file of that name is replaced as a whole, or stays as it is.

    Parameters
    ----------
    path
        The file.
    header
        Whole numbers, texts, and lists of them.
    trees
        Name -> tree of arrays, random keys among them.
    compress
        Whether the arrays are compressed, which takes longer.
    """
    arrays: dict[str, np.ndarray] = {}
    index: dict[str, list[tuple[str, str | None]]] = {}
    for name, tree in trees.items():
        index[name] = []
        for i, (place, leaf) in enumerate(jax.tree_util.tree_leaves_with_path(tree)):
            generator = str(jax.random.key_impl(leaf)) if _is_key(leaf) else None
            index[name].append((jax.tree_util.keystr(place), generator))
            arrays[f"{name}_{i}"] = np.asarray(leaf if generator is None else jax.random.key_data(leaf))
    arrays["header"] = np.array(json.dumps({"index": index, **header}))
    save = np.savez_compressed if compress else np.savez
    with replacing(path) as draft, draft.open("wb") as file:  # a name alone would be given the suffix .npz
        save(file, **arrays)  # type: ignore[arg-type]


def checkpoint_kind(path: str | os.PathLike[str]) -> str | None:
    """The `kind` in the header of a file of `write_checkpoint`, as its content says; None if it is no such file or has none."""
    if not zipfile.is_zipfile(path):
        return None
    try:
        header = read_arrays(path, ["header"])
        return str(json.loads(str(header["header"])).get("kind"))
    except (ValueError, KeyError, AttributeError, RecursionError):
        return None


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read what `write_checkpoint` wrote.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it was written by something else, or is not whole.
    """
    try:
        arrays = read_arrays(path)
        header = json.loads(str(arrays.pop("header")))
        leaves: dict[str, dict[str, Any]] = {}
        for name, places in header.pop("index").items():
            leaves[name] = {place: arrays[f"{name}_{i}"] for i, (place, _) in enumerate(places)}
            for place, generator in places:
                if generator is not None:
                    leaves[name][place] = jax.random.wrap_key_data(leaves[name][place], impl=generator)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)} is damaged, or no saved run: {error}") from error
    return Checkpoint(header, leaves)


def restore(template: Any, leaves: Mapping[str, Any], what: str, skip: int = 0) -> Any:
    """The tree of the template's structure with these leaves.

    Parameters
    ----------
    template
        Tree of arrays, or of their shapes and types.
    leaves
        Path -> leaf.
    what
        Name of the tree for messages.
    skip
        Leading dimensions that may differ.

    Raises
    ------
    ValueError
        If paths, types or shapes differ.
    """
    places, structure = jax.tree_util.tree_flatten_with_path(template)
    expected = {jax.tree_util.keystr(place): leaf for place, leaf in places}
    unlike = sorted(set(expected) ^ set(leaves))
    if unlike:
        origin = "not in the file" if unlike[0] in expected else "only in the file"
        raise ValueError(f"the {what} in the file is another kernel's: {unlike[0]} is {origin}")
    for place, leaf in expected.items():
        saved = leaves[place]
        if (saved.dtype, saved.shape[skip:]) != (leaf.dtype, leaf.shape[skip:]):
            raise ValueError(
                f"the {what} in the file is another kernel's, or of another precision: {place} has type {saved.dtype} and "
                f"shape {saved.shape}, expected {leaf.dtype} and {leaf.shape}"
            )
    return jax.tree.unflatten(structure, [leaves[place] if skip else jnp.asarray(leaves[place]) for place in expected])
