package job

import (
	"context"
	"errors"
	"time"
)

// Journal keeps jobs and their histories. Package jobtest has the suite that
// every journal must pass.
//
// Whatever a method has written is on disk when it returns nil, but for what is
// said at Claim, Renew and Begin: those outlive the process at once, and the
// machine together with the next write. An error that is none of this package's
// means that the disk or the like failed: nothing was written, or, when the
// failure is unclear, all of it; the same call may be made again.
type Journal interface {
	Register
	Ledger
	Desk
}

// Register is for whoever looks after jobs from outside.
type Register interface {
	// Create adds a job, which is ready to be claimed. [ErrExists] when its id
	// is taken.
	Create(ctx context.Context, o Order) error
	// Get gives a job with its input and output. [ErrNoJob].
	Get(ctx context.Context, id ID) (Job, error)
	// List gives jobs without inputs and outputs, the newest first.
	List(ctx context.Context, f Filter) ([]Job, error)
	// History gives a job with all its records, inputs too. [ErrNoJob].
	History(ctx context.Context, id ID) (History, error)
	// Delete erases a job that has ended, and the key of its data.
	// [ErrNotEnded], [ErrNoJob].
	Delete(ctx context.Context, id ID) error
}

// Filter picks jobs of a tenant.
type Filter struct {
	Tenant string
	States []State // none means all
	Agent  string  // "" means all
	Limit  int     // 0 means all
}

// Ledger is for the process that runs a job. All but Claim and NextWake give
// [ErrLost] when the lease is not the job's newest any more; nothing is written
// then.
type Ledger interface {
	// Claim takes jobs that are ready: new, woken, due, or left by a process
	// whose lease ran out. No job is ever claimed twice with the same epoch.
	Claim(ctx context.Context, c Claim) ([]Lease, error)
	// NextWake is when the next waiting job is due; zero for none.
	NextWake(ctx context.Context) (time.Time, error)
	// Renew keeps leases until a later time, never an earlier one, and gives
	// those that are lost.
	Renew(ctx context.Context, until time.Time, leases []Lease) (lost []Lease, err error)
	// Load gives the job and its records, without the inputs of records.
	Load(ctx context.Context, l Lease) (History, error)
	// Begin keeps Begun records of one moment, and the Answered and Timed ones that
	// led to them. The same key and try again changes nothing; a key that has an
	// answer is [ErrConflict]. When there is an answer, or one of the calls may run
	// only once, all is on disk on return.
	Begin(ctx context.Context, l Lease, records []Record) error
	// Keep keeps Answered, Asked and Timed records. The same again changes
	// nothing; another answer to the same key is [ErrConflict], and so is
	// anything new for a key that has an answer.
	Keep(ctx context.Context, l Lease, records []Record) error
	// Park lets a job wait and gives the lease up. [ErrMoved] when more has been
	// decided than the run knows of, or a cancellation came: then it goes on.
	Park(ctx context.Context, l Lease, p Parking) error
	// End ends a job. A job with a cancellation can only end as cancelled:
	// [ErrCancelled].
	End(ctx context.Context, l Lease, e End, at time.Time) error
	// Release gives a running job back, to be claimed by another.
	Release(ctx context.Context, l Lease) error
}

// Desk is for whoever decides.
type Desk interface {
	// Pending gives the questions of a tenant that nobody has decided, the
	// oldest first; "" for all tenants.
	Pending(ctx context.Context, tenant string) ([]Pending, error)
	// Decide decides a question, once, and wakes its job, in one transaction.
	// [ErrNoJob], [ErrEnded] (also when the end is asked for), [ErrNotAsked],
	// [ErrDecided], [ErrOtherQuestion], [ErrExpired].
	Decide(ctx context.Context, d Decision) error
	// Cancel asks for the end of a job and wakes it. The first request counts.
	// [ErrNoJob], [ErrEnded].
	Cancel(ctx context.Context, id ID, c Cancellation) error
}

// Claim says who takes jobs.
type Claim struct {
	Owner string
	Now   time.Time
	Until time.Time // how long the lease holds
	Limit int       // how many jobs at most
}

// Lease is the right to run a job. A later claim of the job has a higher epoch.
type Lease struct {
	ID
	Owner string
	Epoch int64
	Until time.Time
}

// Parking says until when a job waits.
type Parking struct {
	Wake      time.Time // when it goes on by itself; zero for never
	Decisions int       // how many decisions the run knows of
	At        time.Time
}

// Pending is a question that waits for a decision.
type Pending struct {
	ID
	Agent string    `json:"agent,omitempty"`
	Asked time.Time `json:"asked"`
	Question
	Digest Digest `json:"digest"`
}

// Decision decides a question.
type Decision struct {
	ID
	Key string
	// Digest is that of the question as the decider saw it.
	Digest Digest
	Answer Answer
	By     string
	At     time.Time
	// Expiry says that the deadline decided: it must have passed. Any other
	// decision must come before it.
	Expiry bool
}

// What a journal may say. Each calls for another reaction.
var (
	ErrNoJob         = errors.New("there is no such job")
	ErrExists        = errors.New("a job with this id is there already")
	ErrEnded         = errors.New("the job has ended")
	ErrNotEnded      = errors.New("the job has not ended; cancel it first")
	ErrLost          = errors.New("another process has taken the job over")
	ErrConflict      = errors.New("another answer to this key is recorded")
	ErrMoved         = errors.New("the job was woken meanwhile")
	ErrCancelled     = errors.New("the job was cancelled meanwhile")
	ErrNotAsked      = errors.New("the job does not ask this")
	ErrDecided       = errors.New("this was decided already")
	ErrOtherQuestion = errors.New("the job asks something else by now; look again before you decide")
	ErrExpired       = errors.New("the time to decide this has passed")
)
