"""The counter-based random numbers of JAX (Salmon et al. 2011, Threefry-2x32), so that kernels and XLA programs draw the same.

A key is a pair of 32-bit words. The numbers are those of `jax.random` for float64 with ``jax_threefry_partitionable``.
"""

from __future__ import annotations

from bnp_hier.native.memory import compiled, separate

__all__ = ["child", "key_at", "uniform"]

WORD = 0xFFFFFFFF


@compiled
def _mix(x, y, one, two, three, four):
    x = (x + y) & WORD
    y = ((y << one) | (y >> (32 - one))) & WORD ^ x
    x = (x + y) & WORD
    y = ((y << two) | (y >> (32 - two))) & WORD ^ x
    x = (x + y) & WORD
    y = ((y << three) | (y >> (32 - three))) & WORD ^ x
    x = (x + y) & WORD
    y = ((y << four) | (y >> (32 - four))) & WORD ^ x
    return x, y


@separate
def _block(key, x, y):
    """Encrypt the counters x and y."""
    a, b = key
    c = a ^ b ^ 0x1BD11BDA
    x, y = (x + a) & WORD, (y + b) & WORD
    x, y = _mix(x, y, 13, 15, 26, 6)
    x, y = (x + b) & WORD, (y + c + 1) & WORD
    x, y = _mix(x, y, 17, 29, 16, 24)
    x, y = (x + c) & WORD, (y + a + 2) & WORD
    x, y = _mix(x, y, 13, 15, 26, 6)
    x, y = (x + a) & WORD, (y + b + 3) & WORD
    x, y = _mix(x, y, 17, 29, 16, 24)
    x, y = (x + b) & WORD, (y + c + 4) & WORD
    x, y = _mix(x, y, 13, 15, 26, 6)
    return (x + c) & WORD, (y + a + 5) & WORD


@compiled
def key_at(words, place):
    """Key from the words of several ones, 32-bit integers with or without a sign."""
    return words[2 * place] & WORD, words[2 * place + 1] & WORD


@compiled
def child(key, number):
    """``jax.random.split(key, k)[number]`` for any k, which is also ``jax.random.fold_in(key, number)``."""
    return _block(key, 0, number)


@compiled
def uniform(key, index, least):
    """Entry of ``jax.random.uniform(key, shape, minval=least)`` with an index in the flattened array."""
    high, low = _block(key, index >> 32, index & WORD)
    value = ((high << 20) | (low >> 12)) * 2.0**-52
    return max(least, value * (1.0 - least) + least)
