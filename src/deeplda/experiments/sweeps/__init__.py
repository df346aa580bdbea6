"""Sweeps: many runs of one question, shared by any number of workers.

definition.py says what is to be run, ledger.py what was tried and by whom, liveness.py which workers live, worker.py
runs trials one after another, crew.py starts several workers here, display.py shows it all. The TOML files are
the paper's tables.
"""
