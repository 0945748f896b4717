"""The main job on real input: train, import, compare, and weigh each step; run by `weighbridge demo`."""
