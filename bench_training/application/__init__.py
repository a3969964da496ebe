"""The options of the TensorFlow 2 image classification application."""
