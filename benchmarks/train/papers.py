"""What the papers measured, to stand beside ours."""

ICACHE_TABLE_1 = {
    "shufflenet": {"Default": (87.76, 99.59), "iCache": (86.96, 99.57)},
    "resnet18": {"Default": (92.70, 99.81), "iCache": (92.14, 99.80)},
    "mobilenet": {"Default": (92.37, 99.87), "iCache": (92.01, 99.77)},
    "resnet50": {"Default": (89.91, 99.68), "iCache": (89.36, 99.69)},
}
"""Top-1 and top-5 on CIFAR-10 (iCache, HPCA 2023)."""

ICACHE_TABLE_3 = {
    "resnet18": {"Def": (92.70, 99.81), "ST_HC": (91.89, 99.77), "ST_LC": (92.14, 99.80)},
    "shufflenet": {"Def": (87.76, 99.59), "ST_HC": (86.73, 99.52), "ST_LC": (86.96, 99.57)},
}
"""No substitution, by H-samples, by L-samples. Its `Def` is table I's Default to the digit."""

IMPACT_TABLE_1 = {
    "shufflenet": {"Default": (87.76, 99.59), "Base": (87.10, 99.57), "ImPACT": (86.96, 99.57)},
    "resnet18": {"Default": (92.70, 99.81), "Base": (92.17, 99.83), "ImPACT": (92.14, 99.80)},
    "mobilenet": {"Default": (92.37, 99.87), "Base": (92.06, 99.81), "ImPACT": (92.01, 99.77)},
    "resnet50": {"Default": (89.91, 99.68), "Base": (89.40, 99.68), "ImPACT": (89.36, 99.69)},
}
"""ImPACT, TC 2025. Its columns Default and ImPACT are iCache's table I to the digit."""

IMPACT_FIGURE_15 = "hybrid finds 9 to 28 % more of the hardest 1 % than history; real time takes 25 x as long"
IMPACT_FIGURE_16 = "hybrid is 1.3 x as fast as history and up to 3.7 x as fast as real time"
SHADE_FIGURE_12 = {"SHADE": 72.5, "Emul_Coor": 20.0, "Emul_Quiv": 20.0}
"""Hit ratios in percent at a cache of 20 %; the last two are said to be `about 20 %` (FAST 2023)."""
