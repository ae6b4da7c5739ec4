"""`microbench calibrate`: measures one GPU, or this host, into a file that the modelled twin is built from."""
