"""Instruments over a model in training: plain functions of a model and a batch that return values and change nothing.

A model that is handed to them evaluates, and its parameters stay as they are; `recorder/` takes care that it is a copy.
"""
