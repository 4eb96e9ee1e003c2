"""Ahead-of-time engines: the bodies of stages as ONNX, built by TensorRT, kept by content, and run on torch's tensors.

`calls` says what a module is called with, `export` makes ONNX of it, `builder` and `tensorrt` make an engine of that,
`artefact` and `store` keep it, `session` runs it, `gate` holds it against the module it was made from.
"""
