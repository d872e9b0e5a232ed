"""The node's part: finds the hardware, and prepares for containers what the scheduler allocated."""
