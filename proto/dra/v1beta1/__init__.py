"""DRAPlugin v1beta1: kubelets since Kubernetes 1.32."""
