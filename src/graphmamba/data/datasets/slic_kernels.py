"""Groups the pixels of one image by colour and place, and makes each group one connected region."""

from typing import no_type_check

import numpy as np

from graphmamba.data.cpu_compile import kernel
from graphmamba.ops.cpu_compile import helper


@helper
@no_type_check
def _claim(image, mean, window, weight, group, nearest, distance, rows):
    """Give a group all pixels of its window that are nearer to it than to the groups before."""
    channels, height, width = image.shape
    first, last = max(mean[0] - window[0], 0.0), min(mean[0] + window[0] + 1, height)
    begin = int(max(mean[1] - window[1], 0.0))
    end = int(min(mean[1] + window[1] + 1, width))
    # Slices count from zero and need no test for negative numbers: such loops are vectorised.
    across, differs = rows[0], rows[1]
    for x in range(end - begin):
        across[x] = (mean[1] - (begin + x)) ** 2
    for y in range(int(first), int(last)):
        down = (mean[0] - y) ** 2
        for x in range(end - begin):
            differs[x] = 0.0
        for channel in range(channels):
            values, own = image[channel, y, begin:end], mean[2 + channel]
            for x in range(end - begin):
                differs[x] += (values[x] - own) ** 2
        best, owner = distance[y, begin:end], nearest[y, begin:end]
        for x in range(end - begin):
            far = (down + across[x]) * weight + differs[x]
            is_nearer = best[x] > far
            owner[x] = group if is_nearer else owner[x]
            best[x] = far if is_nearer else best[x]


@kernel
@no_type_check
def cluster(image, centre, window, step, iterations):
    """Number of the nearest group of each pixel, [height, width].

    `image` is [channels, height, width], scaled so that a colour distance of 1 weighs as much as
    `step` pixels; `centre` is [groups, 2], where groups begin, all of them black.
    """
    channels, height, width = image.shape
    groups = centre.shape[0]
    mean = np.zeros((groups, 2 + channels))  # row, column, colours
    mean[:, :2] = centre
    size = np.ones(groups, np.int64)
    nearest = np.zeros((height, width), np.int64)
    distance, rows = np.empty((height, width)), np.empty((2, width))
    weight = 1.0 / (step * step)
    for _ in range(iterations):
        distance[:] = np.inf
        for group in range(groups):
            # a group that has lost all its pixels is nowhere
            if size[group]:
                _claim(image, mean[group], window, weight, group, nearest, distance, rows)
        size[:], mean[:] = 0, 0.0
        for y in range(height):
            for x in range(width):
                group = nearest[y, x]
                size[group] += 1
                mean[group, 0] += y
                mean[group, 1] += x
                for channel in range(channels):
                    mean[group, 2 + channel] += image[channel, y, x]
        for group in range(groups):
            mean[group] /= size[group]
    return nearest


@kernel
@no_type_check
def connect(groups, least, most):
    """Cut groups into connected regions of at most `most` pixels, and count them.

    Regions are met row by row; one of fewer than `least` pixels joins a region beside it that was
    met before. The first return value is the number of each pixel's region.
    """
    height, width = groups.shape
    region = np.full((height, width), -1, np.int64)
    queue = np.empty((max(most, 1), 2), np.int64)
    number = 0
    for top in range(height):
        for left in range(width):
            if region[top, left] >= 0:
                continue
            group, beside = groups[top, left], number
            region[top, left] = number
            queue[0, 0], queue[0, 1] = top, left
            visited, found = 0, 1
            while visited < found < most:
                for dy, dx in ((0, 1), (0, -1), (1, 0), (-1, 0)):
                    y, x = queue[visited, 0] + dy, queue[visited, 1] + dx
                    if not (0 <= y < height and 0 <= x < width):
                        continue
                    if groups[y, x] == group and region[y, x] < 0:
                        region[y, x] = number
                        queue[found, 0], queue[found, 1] = y, x
                        found += 1
                        if found >= most:
                            break
                    elif region[y, x] >= 0 and region[y, x] != number:
                        beside = region[y, x]
                visited += 1
            if found < least:
                for place in range(found):
                    region[queue[place, 0], queue[place, 1]] = beside
            else:
                number += 1
    return region, region.max() + 1
