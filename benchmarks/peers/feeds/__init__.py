"""How each arm reads: a module of each has a `Reader`, a `benchmarks.peers.setting.Feed`.

A worker makes of each sample its digest and label, which is all the decoding that there is. Only these
modules import the libraries, since each lives in an environment of its own.
"""
