//go:build unix

package pgserver

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// attributes makes a child the leader of its own session. With an account, the child runs as that user
// and with no group but the user's own.
func attributes(a *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attr
}

const noFollow = syscall.O_NOFOLLOW

// canWrite reports whether the account can create and rename files in the directory. In one with the sticky bit it
// can only replace its own.
func (a *account) canWrite(dir os.FileInfo) bool {
	stat, ok := dir.Sys().(*syscall.Stat_t)
	mode := dir.Mode()
	switch {
	case !ok || stat.Uid == uint32(a.uid):
		return true
	case mode&os.ModeSticky != 0:
		return false
	}
	return mode&0o002 != 0 || mode&0o020 != 0 && stat.Gid == uint32(a.gid)
}

// ownerOf returns the owner of a file; nil if it does not exist or belongs to root or to an unknown user.
func ownerOf(name string) *user.User {
	info, err := os.Lstat(name)
	if err != nil {
		return nil
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid == 0 {
		return nil
	}
	owner, _ := user.LookupId(strconv.FormatUint(uint64(stat.Uid), 10))
	return owner
}
