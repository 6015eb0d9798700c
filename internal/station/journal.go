package station

import (
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/job/jobtest"
	"github.com/belay-run/belay/internal/sqlstore"
)

// openJournal gives the journal of the store.
func openJournal(*sqlstore.Store) job.Journal { return jobtest.NewMemory() }
