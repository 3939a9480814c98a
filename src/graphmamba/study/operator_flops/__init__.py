"""What one call of an operator costs, read from its arguments: the tables behind `count_flops`.

An operator of ours whose work is a recurrence gets a line in `scan.SCAN_OPERATORS`, one whose work
is a product in `products.PRODUCTS`, and one whose work is pointwise, such as a fused norm, in
`own_elementwise.OWN_ELEMENTWISE`. `elementwise` has what PyTorch's own pointwise operators cost.
"""
