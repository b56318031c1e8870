"""Planning and estimation over the ``Step`` and ``Recorder`` protocols. Knows no hardware."""
