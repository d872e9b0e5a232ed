"""Turns what the nodes report into ResourceSlices, and keeps them true."""
