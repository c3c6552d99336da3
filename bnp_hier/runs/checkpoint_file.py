"""Files of pytrees of arrays, without any code."""

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
    """Contents of a checkpoint file.

    - **header** - JSON values, such as whole numbers, strings and lists of them.
    - **leaves** - the leaves of each tree by path.
    """

    header: dict[str, Any]
    leaves: dict[str, dict[str, Any]]


def fingerprint(tree: Any) -> str:
    """SHA-256 hash of the types, shapes and values of all leaves and their places in the tree."""
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
    """Write named trees to an .npz file atomically: an existing file is replaced or, on failure, left unchanged.

    Parameters
    ----------
    path
        The file.
    header
        JSON values, such as whole numbers, strings and lists of them.
    trees
        Name -> tree of arrays, including random keys.
    compress
        Whether to compress the arrays, which takes longer.
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
    arrays["digest"] = np.array(_digest(arrays["header"]))
    save = np.savez_compressed if compress else np.savez
    with replacing(path) as draft, draft.open("wb") as file:  # given a path, NumPy would append the suffix .npz
        save(file, **arrays)  # type: ignore[arg-type]


def _digest(header: np.ndarray) -> str:
    """SHA-256 hash of the header: the archive's own check sums do not show that another program has written it."""
    return hashlib.sha256(str(header).encode()).hexdigest()


def checkpoint_kind(path: str | os.PathLike[str]) -> str | None:
    """Return the `kind` in the header of a file by `write_checkpoint`, whatever its name; None if there is no valid header."""
    if not zipfile.is_zipfile(path):
        return None
    try:
        header = read_arrays(path, ["header"])
        return str(json.loads(str(header["header"])).get("kind"))
    except (ValueError, KeyError, AttributeError, RecursionError):
        return None


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a file written by `write_checkpoint`.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If the file is damaged or was not written by `write_checkpoint`.
    """
    try:
        arrays = read_arrays(path)
        written = arrays.pop("header")
        if "digest" in arrays and str(arrays.pop("digest")) != _digest(written):  # files of older versions have none
            raise ValueError("its header was changed after it was written")
        header = json.loads(str(written))
        leaves: dict[str, dict[str, Any]] = {}
        for name, places in header.pop("index").items():
            leaves[name] = {place: arrays[f"{name}_{i}"] for i, (place, _) in enumerate(places)}
            for place, generator in places:
                if not isinstance(place, str):
                    raise TypeError(f"{place!r} is no place in a tree")
                if generator is not None:
                    leaves[name][place] = jax.random.wrap_key_data(leaves[name][place], impl=generator)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)} is damaged or not a saved run: {error}") from error
    return Checkpoint(header, leaves)


def restore(template: Any, leaves: Mapping[str, Any], what: str, skip: int | None = 0) -> Any:
    """Rebuild a tree with the structure of a template from its leaves.

    Parameters
    ----------
    template
        Tree of arrays or of their shapes and dtypes.
    leaves
        Path -> leaf.
    what
        Name of the tree in error messages.
    skip
        Number of leading dimensions whose sizes may differ; None for all.

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
        raise ValueError(f"the {what} in the file belongs to another kernel: {unlike[0]} is {origin}")
    for place, leaf in expected.items():
        saved = leaves[place]
        fixed = slice(leaf.ndim if skip is None else skip, None)
        if (saved.dtype, saved.ndim, saved.shape[fixed]) != (leaf.dtype, leaf.ndim, leaf.shape[fixed]):
            raise ValueError(
                f"the {what} in the file belongs to another kernel or precision: {place} has dtype {saved.dtype} and shape "
                f"{saved.shape}, expected {leaf.dtype} and {leaf.shape}"
            )
    return jax.tree.unflatten(structure, [leaves[place] if skip else jnp.asarray(leaves[place]) for place in expected])
