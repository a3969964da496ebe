"""The mathematics of training a CNN: rates, updates, mixed images, losses, averages.

``tf`` is always given; nothing here knows a device, a clock or a configuration.
"""
