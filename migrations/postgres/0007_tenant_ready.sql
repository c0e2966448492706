-- What a tenant has ready, or will have: a claim that is shared between tenants, or that excludes some of
-- them, finds each one's next timer in one step, however many of its timers are claimed.

CREATE INDEX idx_timer_queue_tenant_ready
-- The worker's, tenant by tenant, and a tenant's scheduled timers in the order in which they come due. The
-- condition is always true, but keeps the planner from searching in it where no tenant is given, as it
-- would if it took the table for empty.
ON timer_queue (tenant_id, ready_at, timer_id)
WHERE tenant_id IS NOT NULL;

CREATE INDEX idx_timer_queue_tenant_retried
-- A tenant's timers that are retried: they are ready later than they are due.
ON timer_queue (tenant_id, due_at, timer_id)
WHERE attempts > 0;
