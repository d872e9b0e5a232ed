"""What the kubelet asks of a DRA driver: prepare these claims, unprepare those."""
