"""Random words from a list."""

import numpy as np


class Scripted:
    """In place of a stream: the words given, then zeros; `used` is how many were taken."""

    def __init__(self, *words):
        self.left, self.used = list(words), 0

    def words(self, number):
        self.used += number
        return np.array([self.left.pop(0) if self.left else 0 for _ in range(number)], dtype=np.uint64)
