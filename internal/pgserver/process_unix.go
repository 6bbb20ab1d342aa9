//go:build unix

package pgserver

import "syscall"

// attributes makes a child leader of its own session and, with an account,
// lets it run as that user and with no other group than the user's own.
func attributes(a *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attr
}
