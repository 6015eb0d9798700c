//go:build !linux

package main

const thread = 0 // the whole process: there is no clock of a thread
