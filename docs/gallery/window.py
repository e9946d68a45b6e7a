"""Spend more when it matters

Three weeks of daily releases. Any seven days in a row spend at most ε = 1. Saturdays matter nine times as much here,
so planning ahead gives them more than an equal share of 1/7.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import deltahist as dh

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

days = np.arange(1, 22)
weights = np.where(days % 7 == 6, 9.0, 1.0)
amounts = dh.accounts.allocate_offline(weights, length=7, epsilon=1)

# Charge every day to an account that refuses to overspend.
window = dh.accounts.Window(length=7, epsilon=1)
spent = []
for day, amount in zip(days.tolist(), amounts.tolist(), strict=True):
    window.charge(day, amount)
    spent.append(float(window.spent(day)))

figure, (top, bottom) = plt.subplots(2, sharex=True, height_ratios=(2, 1), figsize=(5.2, 4.6))
top.bar(days, amounts, color=np.where(weights > 1, "#D55E00", "#0072B2"))
top.axhline(1 / 7, color="0.3", linewidth=1, linestyle="--")
top.annotate("equal share", (7.6, 1 / 7), xytext=(0, 3), textcoords="offset points")
top.annotate("Saturday", (6.7, 0.25), color="#D55E00", va="top")
top.set_ylabel("ε of the day")
bottom.bar(days, spent, width=1, color="0.8")
bottom.axhline(1, color="0.3", linewidth=1)
bottom.set(xlabel="day", ylabel="last 7 days", ylim=(0, 1.15), xlim=(0.4, 21.6), xticks=[1, 7, 14, 21])
figure.suptitle("One week never costs more than ε = 1", x=0.03, ha="left")
figure.savefig(sys.argv[1])
