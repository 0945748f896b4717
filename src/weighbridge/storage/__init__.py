"""Bytes here and elsewhere: local files, folders, remote stores, ZIP archives."""
