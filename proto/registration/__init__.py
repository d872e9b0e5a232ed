"""How a plugin tells the kubelet that it is there."""
