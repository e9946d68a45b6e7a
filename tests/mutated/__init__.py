"""Valid files of every format that is read, changed at random, and command lines that read them.

`python -m tests.mutated 3000` runs that many, and prints for each format how many were read, how many refused, the
longest time and the largest memory. Every command line must end in success or in one line of error, within SECONDS of
computing and MEMORY bytes beside what was taken before.
"""
