"""The same numbers on any mesh: loss and gradients of emitted modules on ranks against those of the serial module."""
