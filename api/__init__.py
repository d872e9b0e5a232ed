"""The vocabulary that every part of Lanewise shares."""
