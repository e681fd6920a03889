-- Chosen before the first try: a call is recorded once though the answer to that was lost.
ALTER TABLE filaviva.llm_calls ADD COLUMN key uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE;
