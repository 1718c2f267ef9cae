"""What tests of plugins and of user code need: a fake model server and the conformance suites."""
