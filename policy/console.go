package policy

import (
	"context"
	"time"
)

// A Console shows where the settings of pipelines come from, and takes others by hand. That
// of a config.Manager is what a dashboard uses. All methods are safe for concurrent use.
type Console interface {
	// Status says how the configuration came about.
	Status() ConfigStatus

	// Settings lists every setting of a dependency's policies, outermost first: nil
	// where the dependency is not made of a configuration.
	Settings(dependency string) []EffectiveSetting

	// Preview says what a change by hand would do, and changes nothing. The error says
	// what is wrong with it.
	Preview(ctx context.Context, c HandChange) (ConfigEffect, error)

	// Change makes a change by hand. It wins over everything else until its time is
	// over, whatever is loaded meanwhile. The number is for Undo.
	Change(ctx context.Context, c HandChange) (id uint64, err error)

	// Undo takes a change back. What another change has replaced since stays.
	Undo(ctx context.Context, id uint64) error

	// PreviewRollback says what Rollback would do, and changes nothing.
	PreviewRollback(ctx context.Context, version int) (ConfigEffect, error)

	// Rollback puts an earlier version into effect again, until the next load.
	Rollback(ctx context.Context, version int, note string) error
}

// HandChange is a change of some settings of a policy.
type HandChange struct {
	Dependency, Policy string

	// Values are the settings, by their fields, as a file has them: "OpenFor": "5s".
	Values map[string]string

	Length time.Duration // after which it ends by itself; not positive for never
	Note   string        // who and why
}

// ConfigEffect is what a change does.
type ConfigEffect struct {
	Differences []SettingDifference
	Policies    []Replacement // what becomes of the policies of dependencies that change; those that are kept are left out
}

// SettingDifference is a setting before and after a change.
type SettingDifference struct {
	Path     string // such as inventory.breaker.OpenFor
	Old, New string // empty where it is not there
	Origin   string // where the old value came from
}

// EffectiveSetting is a setting that is in force, and where it comes from.
type EffectiveSetting struct {
	Policy, Kind string
	Field        string // within the policy, such as Budget.Ratio
	Value        string // as a file has it
	Layer        string // default, built-in, defaults, file, environment, flags, pinned or hand
	Origin       string // such as breakwater.yaml:12:7, or the name of a variable; empty for a default

	// Of one that was set by hand.
	Note  string    // who and why
	Until time.Time // when it ends; zero for never
}

// ConfigStatus says how the configuration in force came about.
type ConfigStatus struct {
	// Versions are those that are kept, the one in force last.
	Versions []ConfigVersion

	// Fault is what is wrong with what was loaded last: joined errors, each of which
	// begins with the place, such as breakwater.yaml:12:7. Nil when it is in force. It
	// stays until a load succeeds, whatever is changed by hand meanwhile.
	Fault   error
	FaultAt time.Time
}

// ConfigVersion is a configuration that took effect.
type ConfigVersion struct {
	Number      int
	Time        time.Time
	Why         string              // load, reload, hand, expired or rollback
	Note        string              // who and why, of what was done by hand
	Changes     []string            // what became of the dependencies that have changed, in words
	Differences []SettingDifference // from the version before, if it is kept
}
