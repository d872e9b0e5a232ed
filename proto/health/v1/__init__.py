"""DRAResourceHealth v1: kubelets since Kubernetes 1.37."""
