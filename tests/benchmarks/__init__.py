"""Ratios against raw loops on the same servers, in one run."""
