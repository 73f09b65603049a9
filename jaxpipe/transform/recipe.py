"""The straight list of passes from a problem to a nest that a code generator can print."""
