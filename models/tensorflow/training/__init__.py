"""The mathematics of training a CNN: rates, updates, mixed images, losses, averages.

``tf`` is always an argument; nothing here depends on a device, a clock or a configuration.
"""
