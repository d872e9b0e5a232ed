"""DRAResourceHealth v1alpha1: kubelets before Kubernetes 1.37, which still accepts it."""
