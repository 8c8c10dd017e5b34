"""Engines that tests talk to: faulty ones, and a stand-in for the deployed Unreal plugin."""
