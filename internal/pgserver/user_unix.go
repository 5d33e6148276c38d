//go:build unix

package pgserver

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// quit makes PostgreSQL end at once, without a word to its clients.
const quit = syscall.SIGQUIT

// serverUser returns who runs the server: PostgreSQL refuses to be root's, so then it is the
// user that the package has made for it.
func serverUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // the same as we are
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("pgserver: root cannot run PostgreSQL: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// asUser makes a command run as the server's user, and by itself: a terminal's interrupt is
// for us.
func asUser(cmd *exec.Cmd) error {
	c, err := serverUser()
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c, Setpgid: true}
	return nil
}

// giveAway makes a directory the server's.
func giveAway(dir string) error {
	c, err := serverUser()
	if err != nil || c == nil {
		return err
	}
	if err := os.Chown(dir, int(c.Uid), int(c.Gid)); err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	return nil
}
