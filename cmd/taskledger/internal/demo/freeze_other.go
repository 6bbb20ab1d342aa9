//go:build !unix

package demo

const canFreeze = false

func freeze() {}

func (c *child) thaw() {}
