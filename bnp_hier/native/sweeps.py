"""Sweeps that move single rows between clusters; the native form of `partitions.sweeps`."""

from __future__ import annotations

from bnp_hier.native.bridge import Kernel
from bnp_hier.native.memory import copy, integers, numbers, separate
from bnp_hier.native.mixtures import mixture_from
from bnp_hier.native.seats import best, draw, join, leave, prior_of, seats_of, weigh

__all__ = ["SWEEP", "sweep"]


@separate
def sweep(mixture, prior, seats, labels, order, uniforms, inverse_temperature):
    """Visit rows in order and move each by its conditional, or, without uniforms, to its most probable cluster.

    Labels change in place; a row whose conditional is not a distribution gets −1, and the sweep ends there. Returns the
    clusters, the number of rows for which no slot was free, and whether the sweep ended early.
    """
    refused = 0
    for item in order:
        if labels[item] >= 0:
            leave(mixture, seats, prior, item, labels[item])
        size, highest = weigh(mixture, seats, prior, item)
        if not highest == highest:
            labels[item] = -1
            return seats, refused, True
        refused += seats.state[1] == prior.slots
        if len(uniforms) > 0:
            labels[item] = draw(seats, size, highest, uniforms[item], inverse_temperature)
        else:
            labels[item] = best(seats, size, highest)
        seats = join(mixture, seats, prior, item, labels[item])
    return seats, refused, False


def sweep_rows(table):
    """Make one sweep.

    Arguments: component, rows, labels, order, uniforms (n, or none), prior with the temperature, slots, statistics and sizes of
    further rows by slot. Results: labels, and the number of rows without a free slot.
    """
    labels = integers(table, 11)
    copy(integers(table, 4), labels)
    settings, stats, sizes, further = numbers(table, 7), numbers(table, 9), numbers(table, 10), 0.0
    for size in sizes:
        further += size
    mixture = mixture_from(table, int(further), 0)
    prior = prior_of(settings, integers(table, 8)[0])
    seats = seats_of(mixture, labels, prior, stats, sizes)
    _, refused, _ = sweep(mixture, prior, seats, labels, integers(table, 5), numbers(table, 6), 1.0 / settings[2])
    integers(table, 12)[0] = refused


SWEEP = Kernel(sweep_rows, 1, 1, 1, 2, 1, 1, 1, 1, 0, 1, 1, 1, 0)
