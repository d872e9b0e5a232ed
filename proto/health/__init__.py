"""How a driver tells the kubelet which devices are well."""
