//go:build unix

package pgserver

import "syscall"

// attributes makes a child the leader of its own session. With an account, the child runs as that user
// and with no group but the user's own.
func attributes(a *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attr
}
